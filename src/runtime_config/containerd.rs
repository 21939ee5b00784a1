//! Interprets containerd's configuration, versions 1, 2 and 3, in the order in which containerd loads it: a file before its imports.
//!
//! containerd 1 replaces the whole section of a plugin by a later file's section; containerd 2 merges the keys. The configuration
//! does not show which of the two reads it, so if the results differ, both are returned.

use super::{BIN_DIR, CONF_DIR, Directories, Error, File, Handler, Handlers, Named, Networks};

/// The section of the CRI plugin in version 1.
const V1: [&str; 2] = ["plugins", "cri"];
/// The section of the CRI plugin in version 2.
const V2: [&str; 2] = ["plugins", "io.containerd.grpc.v1.cri"];
/// The section of the CRI plugin in version 3, which only containerd 2 reads.
const V3: [&str; 2] = ["plugins", "io.containerd.cri.v1.runtime"];

/// Returns the directories that containerd reads with these files: one result, or one for each of containerd 1 and 2 if they differ.
pub(super) fn directories(runtime: &str, files: &[File]) -> Result<Vec<Directories>, Error> {
    let version = files.iter().rev().find_map(version).unwrap_or(1);
    match version {
        3.. => Ok(vec![merged(runtime, files, &[V3])?]),
        // containerd 2 ignores the directories of version 1.
        ..=1 => Ok(vec![replaced(runtime, files, V1)?]),
        2 => {
            let (first, second) = (replaced(runtime, files, V2)?, merged(runtime, files, &[V3, V2])?);
            let compared = |of: &Directories| {
                (of.conf.value.clone(), of.bin.value.clone(), of.networks.clone(), of.handlers.clone())
            };
            if compared(&first) == compared(&second) {
                return Ok(vec![second]);
            }
            let of = |major: u8, found: Directories| Directories {
                runtime: format!("{runtime}, if it is version {major}"),
                ..found
            };
            Ok(vec![of(1, first), of(2, second)])
        }
    }
}

/// Returns the files that this file imports, as they are written.
pub(super) fn imports(file: &File) -> Result<Vec<String>, Error> {
    Ok(file.texts(&file.table, "imports")?.unwrap_or_default())
}

/// Whether containerd serves no CRI, like that from Docker's packages, and so starts no pods. containerd joins the lists of all files.
pub(super) fn is_without_cri(files: &[File]) -> Result<bool, Error> {
    let lists = files.iter().map(|file| file.texts(&file.table, "disabled_plugins"));
    let lists = lists.collect::<Result<Vec<_>, _>>()?;
    Ok(lists.iter().flatten().flatten().any(|plugin| [V1[1], V2[1], V3[1]].contains(&plugin.as_str())))
}

/// Returns the version that a file sets.
fn version(file: &File) -> Option<i64> {
    file.table.get("version")?.as_integer().filter(|version| *version > 0)
}

/// Reads as containerd 1: only the last section of the plugin applies.
fn replaced(runtime: &str, files: &[File], plugin: [&str; 2]) -> Result<Directories, Error> {
    let last = files.iter().rev().find(|file| file.section(&plugin).is_some());
    let mut found = merged(runtime, last.map(std::slice::from_ref).unwrap_or_default(), &[plugin])?;
    if let Some(file) = last {
        read_deprecated(&mut found.handlers, file, plugin)?;
    }
    Ok(found)
}

/// Reads the deprecated keys that set containerd 1's handlers `default` and `untrusted`, if they have a type.
fn read_deprecated(handlers: &mut Handlers, file: &File, [top, plugin]: [&str; 2]) -> Result<(), Error> {
    for (key, name) in [("default_runtime", "default"), ("untrusted_workload_runtime", "untrusted")] {
        let Some(table) = file.section(&[top, plugin, "containerd", key]) else { continue };
        if file.text(table, "runtime_type")?.is_none_or(|kind| kind.is_empty()) {
            continue;
        }
        let mut handler = Handler::default();
        read_handler(&mut handler, file, table)?;
        handlers.by_name.insert(name.to_owned(), handler);
        if name == "default" {
            handlers.default = Some(Named::by(file, name.to_owned()));
        }
    }
    Ok(())
}

/// Reads as containerd 2: the value of the last file that has a key applies. A later section of `plugins` takes precedence.
fn merged(runtime: &str, files: &[File], plugins: &[[&str; 2]]) -> Result<Directories, Error> {
    let mut conf = Named::default(CONF_DIR.into());
    let (mut single, mut several) = (None, None);
    let (mut networks, mut handlers) = (Networks::default(), Handlers::with_default("runc"));
    for (file, [top, plugin]) in plugins.iter().flat_map(|plugin| files.iter().map(move |file| (file, plugin))) {
        read_handlers(&mut handlers, file, &[top, plugin, "containerd"])?;
        let Some(cni) = file.section(&[top, plugin, "cni"]) else { continue };
        if let Some(dir) = file.text(cni, "conf_dir")? {
            conf = Named::by(file, dir.into());
        }
        if let Some(dir) = file.text(cni, "bin_dir")? {
            single = Some(dir).filter(|dir| !dir.is_empty()).map(|dir| Named::by(file, vec![dir.into()]));
        }
        if let Some(dirs) = file.texts(cni, "bin_dirs")? {
            several = Some(Named::by(file, dirs.into_iter().map(Into::into).collect()));
        }
        if let Some(max) = file.integer(cni, "max_conf_num")? {
            networks.max = Some(Named::by(file, max));
        }
        if let Some(template) = file.text(cni, "conf_template")? {
            networks.template = Some(template).filter(|path| !path.is_empty()).map(|path| Named::by(file, path.into()));
        }
    }
    let bin = single.or(several).unwrap_or_else(|| Named::default(vec![BIN_DIR.into()]));
    Ok(Directories { runtime: runtime.to_owned(), conf, bin, networks, handlers })
}

/// Reads the handlers in the section `containerd` of a plugin; a later file's key replaces an earlier one's.
fn read_handlers(handlers: &mut Handlers, file: &File, section: &[&str]) -> Result<(), Error> {
    let Some(table) = file.section(section) else { return Ok(()) };
    if let Some(name) = file.text(table, "default_runtime_name")? {
        handlers.default = Some(Named::by(file, name));
    }
    let tables = table.get("runtimes").and_then(toml::Value::as_table).into_iter().flatten();
    for (name, table) in tables.filter_map(|(name, value)| Some((name, value.as_table()?))) {
        read_handler(handlers.by_name.entry(name.clone()).or_default(), file, table)?;
    }
    Ok(())
}

fn read_handler(handler: &mut Handler, file: &File, table: &toml::Table) -> Result<(), Error> {
    if let Some(conf) = file.text(table, "cni_conf_dir")? {
        // An empty path stands for the directory of all pods.
        handler.conf = Some(conf).filter(|dir| !dir.is_empty()).map(|dir| Named::by(file, dir.into()));
    }
    if let Some(max) = file.integer(table, "cni_max_conf_num")? {
        handler.max = Some(Named::by(file, max));
    }
    let options = table.get("options").and_then(toml::Value::as_table);
    let own = ["runtime_type", "runtime_path", "runtime_engine"].map(|key| (Some(table), key));
    for (table, key) in own.into_iter().chain([(options, "BinaryName")]) {
        let value = table.map(|table| file.text(table, key)).transpose()?.flatten();
        handler.programs.extend(value.map(|value| (key, Named::by(file, value))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRI2: &str = "[plugins.'io.containerd.grpc.v1.cri'.cni]\n";
    const CRI3: &str = "[plugins.'io.containerd.cri.v1.runtime'.cni]\n";

    fn found(texts: &[String]) -> Vec<(String, String)> {
        let parse = |text: &String| File::parse("/etc/containerd/config.toml".into(), text.as_bytes()).unwrap();
        let files: Vec<File> = texts.iter().map(parse).collect();
        let found = directories("containerd", &files).unwrap().into_iter().map(|found| {
            let bin: Vec<_> = found.bin.value.iter().map(|dir| dir.display().to_string()).collect();
            (found.conf.value.display().to_string(), bin.join(":"))
        });
        found.collect()
    }

    fn pair(conf: &str, bin: &str) -> (String, String) {
        (conf.to_owned(), bin.to_owned())
    }

    #[test]
    fn each_version_has_its_section() {
        let defaults = pair(CONF_DIR, BIN_DIR);
        for (text, expected) in [
            (String::new(), defaults.clone()),
            ("[plugins.cri.cni]\nbin_dir = '/v1'".to_owned(), pair(CONF_DIR, "/v1")),
            (format!("version = 2\n{CRI2}bin_dir = '/a'\nconf_dir = '/b'"), pair("/b", "/a")),
            (format!("version = 2\n{CRI3}bin_dir = '/a'"), pair(CONF_DIR, "/a")),
            (format!("{CRI2}bin_dir = '/a'"), defaults.clone()),
            (format!("version = 3\n{CRI3}bin_dirs = ['/a', '/b']"), pair(CONF_DIR, "/a:/b")),
            (format!("version = 3\n{CRI3}bin_dir = '/a'"), pair(CONF_DIR, "/a")),
            (format!("version = 3\n{CRI2}bin_dir = '/a'"), defaults),
        ] {
            assert_eq!(found(std::slice::from_ref(&text)).last(), Some(&expected), "{text}");
        }
    }

    #[test]
    fn an_import_replaces_the_section_in_version_1_and_keys_in_version_2() {
        let main = format!("version = 2\n{CRI2}bin_dir = '/a'\nconf_dir = '/b'");
        let import = format!("version = 2\n{CRI2}bin_dir = '/imported'");
        assert_eq!(found(&[main, import]), [pair(CONF_DIR, "/imported"), pair("/b", "/imported")]);
    }

    #[test]
    fn settings_of_networks_and_handlers_are_read() {
        let main = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nmax_conf_num = 0\nconf_template = '/t'\n\
                    [plugins.'io.containerd.grpc.v1.cri'.containerd]\ndefault_runtime_name = 'kata'\n\
                    [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.kata]\ncni_conf_dir = '/kata'\ncni_max_conf_num = 3\n\
                    runtime_type = 'io.containerd.kata.v2'\n\
                    [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.run]\nruntime_type = 'io.containerd.runc.v2'\n\
                    [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.run.options]\nBinaryName = 'runsc'\n";
        let import = "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.kata]\ncni_conf_dir = ''\n";
        let file = |text: &str| File::parse("/c".into(), text.as_bytes()).unwrap();
        let Directories { networks, handlers, .. } = directories("containerd", &[file(main)]).unwrap().remove(0);
        assert_eq!(networks.max.unwrap().value, 0);
        assert_eq!(networks.template.unwrap().value, std::path::Path::new("/t"));
        let kata = &handlers.by_name["kata"];
        assert_eq!((kata.conf.clone().unwrap().value, kata.max.clone().unwrap().value), ("/kata".into(), 3));
        let sandbox = |name: &str| handlers.by_name[name].sandbox().map(|found| found.value.clone());
        assert_eq!(sandbox("kata").as_deref(), Some("io.containerd.kata.v2"));
        assert_eq!(sandbox("run").as_deref(), Some("runsc"));
        assert_eq!(handlers.default.unwrap().value, "kata");
        let old = "[plugins.cri.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runtime.v1.linux'\nruntime_engine = '/bin/runsc'\n";
        let old = directories("containerd", &[file(old)]).unwrap().remove(0).handlers;
        assert_eq!(old.by_name[&old.default.unwrap().value].sandbox().unwrap().value, "/bin/runsc");
        let deprecated = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.default_runtime]\n\
                          runtime_type = 'io.containerd.runc.v2'\n\
                          [plugins.'io.containerd.grpc.v1.cri'.containerd.untrusted_workload_runtime]\n\
                          runtime_type = 'io.containerd.kata.v2'\n";
        let found = directories("containerd", &[file(deprecated)]).unwrap();
        let [first, second] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(first.handlers.default.as_ref().unwrap().value, "default");
        assert_eq!(first.handlers.by_name["untrusted"].sandbox().unwrap().value, "io.containerd.kata.v2");
        assert_eq!((&second.handlers.default.as_ref().unwrap().value[..], second.handlers.by_name.len()), ("runc", 0));
        let both = directories("containerd", &[file(main), file(import)]).unwrap();
        assert_eq!(both.last().unwrap().handlers.by_name["kata"].conf, None);
        let wrong = file("version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nmax_conf_num = '1'\n");
        let error = directories("containerd", &[wrong]).unwrap_err().to_string();
        assert_eq!(error, "/c: max_conf_num is string, not an integer");
    }
}
