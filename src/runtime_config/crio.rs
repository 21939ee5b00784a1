//! Interprets CRI-O's configuration: `crio.conf`, then the drop-ins by name; a later file's key replaces an earlier one's.

use std::collections::BTreeSet;

use super::handlers::is_sandbox_program;
use super::{BIN_DIR, CONF_DIR, Directories, Error, File, Handler, Handlers, Named, Networks};

/// Returns the directories that CRI-O reads with these files.
pub(super) fn directories(runtime: &str, files: &[File]) -> Result<Directories, Error> {
    let mut conf = Named::default(CONF_DIR.into());
    let mut bin = Named::default(vec![BIN_DIR.into()]);
    let (mut deprecated, mut networks, mut handlers) = (None, Networks::default(), Handlers::with_default("crun"));
    let mut heirs = BTreeSet::new();
    for file in files {
        read_handlers(&mut handlers, &mut heirs, file)?;
        let Some(network) = file.section(&["crio", "network"]) else { continue };
        if let Some(dir) = file.text(network, "network_dir")? {
            conf = Named::by(file, dir.into());
        }
        if let Some(name) = file.text(network, "cni_default_network")? {
            networks.default = Some(name).filter(|name| !name.is_empty()).map(|name| Named::by(file, name));
        }
        if let Some(dirs) = file.texts(network, "plugin_dirs")? {
            bin = Named::by(file, dirs.into_iter().map(Into::into).collect());
        }
        if let Some(dir) = file.text(network, "plugin_dir")? {
            deprecated = Some((file, dir)).filter(|(_, dir)| !dir.is_empty());
        }
    }
    // CRI-O searches the deprecated directory after the others.
    if let Some((file, dir)) = deprecated {
        bin.value.push(dir.into());
        bin.file.get_or_insert_with(|| file.path.clone());
    }
    inherit(&mut handlers, &heirs);
    Ok(Directories { runtime: runtime.to_owned(), conf, bin, networks, handlers })
}

/// Gives the handlers with `inherit_default_runtime` the type and the path of the default handler.
fn inherit(handlers: &mut Handlers, heirs: &BTreeSet<String>) {
    let Some(default) = handlers.default.as_ref().map(|default| default.value.clone()) else { return };
    let of_default = handlers.by_name.get(&default).map(|handler| handler.programs.clone()).unwrap_or_default();
    for heir in heirs.iter().filter(|heir| **heir != default) {
        let Some(handler) = handlers.by_name.get_mut(heir) else { continue };
        for key in ["runtime_type", "runtime_path"] {
            match of_default.get(key) {
                Some(value) => drop(handler.programs.insert(key, value.clone())),
                None => drop(handler.programs.remove(key)),
            }
        }
        handler.programs.entry("runtime_path").or_insert_with(|| Named::default(default.clone()));
    }
}

/// Reads the handlers, and the names of those that inherit from the default handler; a later file's table replaces an earlier one's.
fn read_handlers(handlers: &mut Handlers, heirs: &mut BTreeSet<String>, file: &File) -> Result<(), Error> {
    let Some(table) = file.section(&["crio", "runtime"]) else { return Ok(()) };
    if let Some(name) = file.text(table, "default_runtime")? {
        handlers.default = Some(name).filter(|name| !name.is_empty()).map(|name| Named::by(file, name));
    }
    let tables = table.get("runtimes").and_then(toml::Value::as_table).into_iter().flatten();
    for (name, table) in tables.filter_map(|(name, value)| Some((name, value.as_table()?))) {
        let mut handler = Handler::default();
        for key in ["runtime_type", "runtime_path"] {
            let value = file.text(table, key)?.filter(|value| !value.is_empty());
            handler.programs.extend(value.map(|value| (key, Named::by(file, value))));
        }
        // The path for an image's platform replaces `runtime_path`. If one of the paths is a sandboxed runtime's, it decides.
        let platforms = table.get("platform_runtime_paths").and_then(toml::Value::as_table).into_iter().flatten();
        let paths = platforms.filter_map(|(_, path)| path.as_str()).max_by_key(|path| is_sandbox_program(path));
        handler.programs.extend(paths.map(|path| ("platform_runtime_paths", Named::by(file, path.to_owned()))));
        match table.get("inherit_default_runtime").and_then(toml::Value::as_bool) {
            Some(true) => drop(heirs.insert(name.clone())),
            _ => drop(heirs.remove(name)),
        }
        // Without a path, CRI-O searches a program with the handler's name.
        if handler.sandbox().is_none() {
            handler.programs.entry("runtime_path").or_insert_with(|| Named::by(file, name.clone()));
        }
        handlers.by_name.insert(name.clone(), handler);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_later_file_replaces_single_keys() {
        let file = |path: &str, text: &str| File::parse(path.into(), text.as_bytes()).unwrap();
        let main = file("/etc/crio/crio.conf", "[crio.network]\nnetwork_dir = '/n'\nplugin_dir = '/old'\n");
        let alone = directories("CRI-O", std::slice::from_ref(&main)).unwrap();
        assert_eq!(
            (alone.conf.value.as_path(), alone.conf.file.as_deref()),
            (Path::new("/n"), Some(main.path.as_path()))
        );
        assert_eq!(alone.bin.value, [Path::new("/opt/cni/bin"), Path::new("/old")]);
        let drop_in = file("/etc/crio/crio.conf.d/10.conf", "[crio.network]\nplugin_dirs = ['/p', '/q']\n");
        let both = directories("CRI-O", &[main, drop_in.clone()]).unwrap();
        assert_eq!(both.bin, Named::by(&drop_in, ["/p", "/q", "/old"].map(Into::into).to_vec()));
        assert_eq!(both.conf.value, Path::new("/n"));
        assert_eq!(both.networks.default, None);
        let named = file("/etc/crio/crio.conf.d/20.conf", "[crio.network]\ncni_default_network = 'pods'\n");
        let found = directories("CRI-O", std::slice::from_ref(&named)).unwrap();
        assert_eq!(found.networks.default, Some(Named::by(&named, "pods".to_owned())));
    }

    #[test]
    fn a_later_files_handler_replaces_an_earlier_one() {
        let file = |text: &str| File::parse("/c".into(), text.as_bytes()).unwrap();
        let main =
            file("[crio.runtime]\ndefault_runtime = 'crun'\n[crio.runtime.runtimes.kata]\nruntime_type = 'vm'\n");
        let drop_in =
            file("[crio.runtime]\ndefault_runtime = 'kata'\n[crio.runtime.runtimes.kata]\nruntime_path = '/r'\n");
        let handlers = |files: &[File]| directories("CRI-O", files).unwrap().handlers;
        let alone = handlers(std::slice::from_ref(&main));
        assert_eq!(alone.by_name["kata"].sandbox().unwrap().value, "vm");
        let both = handlers(&[main, drop_in]);
        assert_eq!((both.by_name["kata"].sandbox(), both.default.unwrap().value.as_str()), (None, "kata"));
        let unnamed = handlers(&[file("[crio.runtime.runtimes.runsc]\nruntime_type = 'oci'\n")]);
        assert_eq!(unnamed.by_name["runsc"].sandbox().unwrap().value, "runsc");
        assert_eq!(unnamed.default, Some(Named::default("crun".to_owned())));
    }

    #[test]
    fn a_handler_may_inherit_the_program_of_the_default_one() {
        let file = |text: &str| File::parse("/c".into(), text.as_bytes()).unwrap();
        let heir = "[crio.runtime.runtimes.heir]\nruntime_path = '/usr/bin/runsc'\ninherit_default_runtime = true\n";
        let default = "[crio.runtime]\ndefault_runtime = 'k'\n[crio.runtime.runtimes.k]\nruntime_type = 'vm'\n";
        let sandbox = |files: &[File]| {
            let handlers = directories("CRI-O", files).unwrap().handlers;
            handlers.by_name["heir"].sandbox().map(|found| found.value.clone())
        };
        assert_eq!(sandbox(&[file(heir)]), None);
        assert_eq!(sandbox(&[file(heir), file(default)]).as_deref(), Some("vm"));
        let independent = file(&heir.replace("true", "false"));
        assert_eq!(sandbox(&[file(heir), file(default), independent]).as_deref(), Some("/usr/bin/runsc"));
    }

    #[test]
    fn the_path_of_a_platform_may_be_that_of_a_sandbox() {
        let text = "[crio.runtime.runtimes.run]\nruntime_path = '/usr/bin/crun'\n\
                    platform_runtime_paths = { 'linux/arm64' = '/usr/bin/runsc', 'linux/riscv64' = '/usr/bin/crun' }\n";
        let file = File::parse("/c".into(), text.as_bytes()).unwrap();
        let handlers = directories("CRI-O", &[file]).unwrap().handlers;
        assert_eq!(handlers.by_name["run"].sandbox().unwrap().value, "/usr/bin/runsc");
    }

    #[test]
    fn a_value_of_another_type_is_named() {
        let file = File::parse("/c".into(), b"[crio.network]\nplugin_dirs = '/p'\n").unwrap();
        let error = directories("CRI-O", &[file]).unwrap_err().to_string();
        assert_eq!(error, "/c: plugin_dirs is string, not a list of strings");
    }
}
