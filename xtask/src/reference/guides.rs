//! Tests that the guides are true: their commands parse, the values and files that they name exist, and so do the sections to which the
//! code refers.

use std::fs;
use std::path::Path;

use super::flags::commands;
use super::{errors, in_repository, read};

const GUIDES: [&str; 6] = [
    "docs/quickstart.md",
    "docs/migration.md",
    "docs/troubleshooting.md",
    "docs/platforms.md",
    "docs/security.md",
    "docs/tuning.md",
];

/// Returns the lines in a page's code blocks.
fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("```").skip(1).step_by(2);
    // The first line of a block is its language.
    blocks.flat_map(|block| block.lines().skip(1)).map(str::trim).filter(|line| !line.is_empty())
}

/// Returns the words of a line's command: of the command that `kubectl exec` runs after `--`, or else of the whole
/// line.
fn own_command(line: &str) -> Vec<&str> {
    let command = line.split_once(" -- ").map_or(line, |(_, command)| command);
    command.split_whitespace().take_while(|word| !matches!(*word, ">" | "|" | "#")).collect()
}

/// Returns the error in a line of a code block.
fn fault(line: &str) -> Option<String> {
    let words = own_command(line);
    let program = words.first()?;
    if let Some(command) = commands().into_iter().find(|command| command.get_name() == *program) {
        return command.try_get_matches_from(&words).err().map(|error| error.to_string());
    }
    match *program {
        "kubectl" | "modprobe" => None,
        "helm" => fault_of_helm(&words),
        _ => Some("no program of this project, kubectl, helm or modprobe".to_owned()),
    }
}

/// Returns the error of a `helm` command: a value that the chart does not have, or a directory of the chart that does
/// not exist.
fn fault_of_helm(words: &[&str]) -> Option<String> {
    let values = read("docs/reference/values.md").unwrap();
    // Values of other charts, such as istiod's, are not known here.
    let is_own = words.iter().any(|word| word.starts_with("install/helm/"));
    let set = words.windows(2).filter(|pair| is_own && pair[0] == "--set").map(|pair| pair[1]);
    let unknown = |set: &&str| !set.split_once('=').is_some_and(|(key, _)| values.contains(&format!("`{key}`")));
    if let Some(set) = set.into_iter().find(unknown) {
        return Some(format!("{set}: no such value"));
    }
    let missing = words.iter().find(|word| word.starts_with("install/") && !in_repository(word).is_dir());
    missing.map(|path| format!("{path} does not exist"))
}

/// Returns the anchor that GitHub gives to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Whether a page has a section or an element with this anchor.
fn has_anchor(page: &str, name: &str) -> bool {
    let headings = page.lines().filter_map(|line| line.strip_prefix('#')).map(|line| line.trim_start_matches('#'));
    headings.map(anchor).any(|found| found == name) || page.contains(&format!("<a id=\"{name}\"></a>"))
}

/// Returns the fault of a link from a page in `directory` to a page or to a section of a page.
fn broken(directory: &Path, link: &str) -> Option<String> {
    let (path, name) = link.split_once('#').map_or((link, None), |(path, name)| (path, Some(name)));
    let target = in_repository(directory.join(path));
    let page = fs::read_to_string(&target)
        .or_else(|error| if target.is_dir() { Ok(String::new()) } else { Err(format!("{link}: {error}")) });
    match (page, name) {
        (Err(error), _) => Some(error),
        (Ok(page), Some(name)) if !has_anchor(&page, name) => Some(format!("{link}: no such section")),
        _ => None,
    }
}

/// Returns the targets of a page's links to other pages, and to its own sections.
fn links<'a>(page: &'a str, own: &'a str) -> impl Iterator<Item = String> + 'a {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://"));
    local.map(move |target| if target.starts_with('#') { format!("{own}{target}") } else { target.to_owned() })
}

#[test]
fn commands_of_the_guides_are_understood() {
    let (mut wrong, mut own) = (Vec::new(), 0);
    for guide in GUIDES {
        let text = read(guide).unwrap();
        for line in code_lines(&text) {
            own += usize::from(!matches!(own_command(line).first(), Some(&("kubectl" | "helm" | "modprobe"))));
            wrong.extend(fault(line).map(|fault| format!("{guide}: {line}: {fault}")));
        }
    }
    assert!(own > 12, "found {own} commands of this project");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the examples at the end of the help of a command and of its subcommands.
fn examples(command: &clap::Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let own = help.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect::<Vec<_>>();
    own.into_iter().chain(command.get_subcommands().flat_map(examples)).collect()
}

#[test]
fn each_program_has_examples_that_are_understood() {
    for command in commands() {
        let examples = examples(&command);
        assert!(examples.len() > 1, "{} has no examples", command.get_name());
        for example in examples {
            assert_eq!(own_command(&example).first(), Some(&command.get_name()), "{example}");
            assert_eq!(fault(&example), None, "{example}");
        }
    }
}

#[test]
fn a_wrong_command_is_found() {
    for (line, said) in [
        ("istio-cnictl chek", "chek"),
        ("kubectl exec ds/istio-cni-node -- install-cni check --no-such-flag", "--no-such-flag"),
        ("helm install istio-cni install/helm/istio-cni --set global.platfrom=k3s", "no such value"),
        ("helm install istio-cni install/helm/istio", "does not exist"),
        ("rm -r x", "no program of this project"),
    ] {
        assert!(fault(line).is_some_and(|fault| fault.contains(said)), "{line}: {:?}", fault(line));
    }
}

#[test]
fn links_of_the_guides_have_targets() {
    let mut wrong = Vec::new();
    for guide in GUIDES {
        let (directory, name) = guide.rsplit_once('/').unwrap();
        let (directory, text) = (Path::new(directory), read(guide).unwrap());
        wrong.extend(
            links(&text, name).filter_map(|link| broken(directory, &link)).map(|fault| format!("{name}: {fault}")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(broken(Path::new("docs"), "platforms.md#no").is_some_and(|fault| fault.contains("no such section")));
}

#[test]
fn pages_that_the_code_names_exist() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (path, text) in errors::files().unwrap() {
        let literals = text.split("\"docs/").skip(1).filter_map(|rest| rest.split('"').next());
        for link in literals.filter(|link| link.contains(".md")) {
            seen += 1;
            wrong.extend(broken(Path::new("docs"), link).map(|fault| format!("{}: {fault}", path.display())));
        }
    }
    assert!(seen > 8, "found {seen} pages");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
