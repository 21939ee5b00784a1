//! The members of a data field that a template reads, found in its tree without rendering it.

use std::collections::{BTreeMap, BTreeSet};

use super::Template;
use super::node::{Branch, Command, Node, Operand, Pipe, Tree};

/// The path of a member below the field.
type Path = Vec<String>;

/// The members of a data field that the expressions of a template may read, also in branches that are never rendered,
/// but not in named templates that it does not call.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Members that are read with all members below them.
    whole: BTreeSet<Path>,
    /// Members that are only tested for being empty.
    tested: BTreeSet<Path>,
}

impl Paths {
    /// Whether the template may read this member or a member below it.
    pub fn has(&self, path: &[&str]) -> bool {
        // One of the two paths is the start of the other.
        let is_common = |found: &Path| found.iter().zip(path).all(|(a, b)| a == b);
        let is_tested = |tested: &Path| tested.len() >= path.len() && is_common(tested);
        self.whole.iter().any(is_common) || self.tested.iter().any(is_tested)
    }

    /// Whether the template reads nothing of the field.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.tested.is_empty()
    }
}

impl Template {
    /// Returns the members of a data field that the template may read. Any field of this name is taken for the data
    /// field, whatever value it is read from.
    pub fn paths(&self, field: &str) -> Paths {
        let mut finder = Finder { template: self, field, variables: BTreeMap::new(), found: Paths::default() };
        finder.tree(&self.tree);
        finder.found
    }
}

/// How much of a value the template reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The template may read all of it.
    Whole,
    /// The template reads only whether it is empty.
    Tested,
}

struct Finder<'t> {
    template: &'t Template,
    field: &'t str,
    /// The paths that variables are set to, by slot.
    variables: BTreeMap<usize, BTreeSet<Path>>,
    found: Paths,
}

impl Finder<'_> {
    fn tree(&mut self, tree: &Tree) {
        for nodes in tree.called() {
            // Each named template has variables of its own.
            self.variables.clear();
            self.nodes(nodes);
        }
    }

    fn nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Action(pipe) | Node::Template(_, _, Some(pipe)) => self.pipe(pipe, Use::Whole),
                Node::If(branch) => self.branch(branch, Use::Tested),
                // The body may read any part of the value by its dot.
                Node::With(branch) | Node::Range(branch) => {
                    self.commands(&branch.pipe, Use::Whole);
                    self.branch(branch, Use::Whole);
                }
                Node::Template(..) | Node::Text(_) | Node::Break | Node::Continue => {}
            }
        }
    }

    fn branch(&mut self, branch: &Branch, used: Use) {
        self.pipe(&branch.pipe, used);
        self.nodes(&branch.body);
        self.nodes(&branch.otherwise);
    }

    fn pipe(&mut self, pipe: &Pipe, used: Use) {
        if pipe.slots.is_empty() {
            return self.commands(pipe, used);
        }
        // Which members are read depends on where the template uses the variable.
        let paths = single(pipe).and_then(|operand| self.paths(operand));
        match &paths {
            Some(paths) => self.found.tested.extend(paths.iter().cloned()),
            None => self.commands(pipe, Use::Whole),
        }
        for slot in &pipe.slots {
            let known = self.variables.entry(*slot).or_default();
            if pipe.declares {
                // The slot may have belonged to a variable whose scope has ended.
                known.clear();
            }
            known.extend(paths.iter().flatten().cloned());
        }
    }

    fn commands(&mut self, pipe: &Pipe, used: Use) {
        for (at, command) in pipe.commands.iter().enumerate() {
            let used = pipe.commands[at + 1..].iter().rev().fold(used, |used, next| self.of_arguments(next, used));
            let of_arguments = self.of_arguments(command, used);
            self.operand(&command.head, if command.arguments.is_empty() { used } else { Use::Whole });
            command.arguments.iter().for_each(|argument| self.operand(argument, of_arguments));
        }
    }

    /// Returns how much of its arguments a command reads if `used` of its value is read.
    fn of_arguments(&self, command: &Command, used: Use) -> Use {
        let Operand::Call(span, _) = &command.head else { return Use::Whole };
        match self.template.text(*span) {
            "not" => Use::Tested,
            "and" | "or" => used,
            _ => Use::Whole,
        }
    }

    fn operand(&mut self, operand: &Operand, used: Use) {
        if let Some(paths) = self.paths(operand) {
            let found = if used == Use::Whole { &mut self.found.whole } else { &mut self.found.tested };
            return found.extend(paths);
        }
        match operand {
            Operand::Chain(_, of, _) => self.operand(of, Use::Whole),
            Operand::Pipe(pipe) => self.pipe(pipe, used),
            _ => {}
        }
    }

    /// Returns the paths that an operand may stand for; `None` if it has another value.
    fn paths(&self, operand: &Operand) -> Option<BTreeSet<Path>> {
        let below = |fields: &[Box<str>]| {
            let at = fields.iter().position(|field| **field == *self.field)?;
            Some(BTreeSet::from([fields[at + 1..].iter().map(ToString::to_string).collect()]))
        };
        let extended = |paths: &BTreeSet<Path>, fields: &[Box<str>]| {
            let extended = |path: &Path| path.iter().cloned().chain(fields.iter().map(ToString::to_string)).collect();
            (!paths.is_empty()).then(|| paths.iter().map(extended).collect())
        };
        match operand {
            Operand::Field(_, fields) => below(fields),
            Operand::Variable(_, slot, fields) => below(fields).or_else(|| extended(self.variables.get(slot)?, fields)),
            Operand::Chain(_, of, fields) => extended(&self.paths(of)?, fields),
            Operand::Pipe(pipe) if pipe.slots.is_empty() => self.paths(single(pipe)?),
            _ => None,
        }
    }
}

/// Returns the operand of a pipeline that consists of one operand without arguments.
fn single(pipe: &Pipe) -> Option<&Operand> {
    match &*pipe.commands {
        [Command { head, arguments, .. }] if arguments.is_empty() => Some(head),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Delims, Functions, Paths, Template};

    fn paths(text: &str) -> Paths {
        let functions = Functions::go().with_sprig();
        Template::parse("t", text, Delims::BRACES, &functions).unwrap().paths("Values")
    }

    #[test]
    fn a_member_is_read_with_the_members_below_it_and_around_it() {
        for text in [
            "{{ .Values.a.b }}",
            "{{ $.data.Values.a.b | quote }}",
            "{{ if .x }}{{ else }}{{ (.Values.a).b }}{{ end }}",
            "{{ $v := .Values }}{{ if true }}{{ $v.a.b }}{{ end }}",
            "{{ $a := (.Values.a) }}{{ print $a.b }}",
            "{{ with .Values.a.b }}{{ .c }}{{ end }}",
            "{{ range $k, $v := .Values.a.b }}{{ end }}",
            "{{ template `t` (dict `b` .Values.a.b) }}",
            "{{ define `t` }}{{ .Values.a.b }}{{ end }}{{ template `t` . }}",
            "{{ $b := and .x .Values.a.b }}",
            "{{ if (or .x .Values.a.b).c }}{{ end }}",
            "{{ if .Values.a.b | toYaml | contains `x` }}{{ end }}",
        ] {
            let found = paths(text);
            for (path, is_read) in [
                (&["a"][..], true),
                (&["a", "b"], true),
                (&["a", "b", "c"], true),
                (&["a", "c"], false),
                (&["b"], false),
            ] {
                assert_eq!(found.has(path), is_read, "{text}: {path:?}");
            }
        }
        for text in ["{{ index .Values `a` }}", "{{ toYaml .Values }}", "{{ range .Values }}{{ end }}"] {
            assert!(paths(text).has(&["any", "other"]), "{text}");
        }
        for text in ["{{ .Other.a }}", "{{ define `t` }}{{ .Values.a }}{{ end }}"] {
            assert!(paths(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_condition_reads_no_member_below() {
        for text in [
            "{{ if .Values.a }}{{ end }}",
            "{{ if and .x (not .Values.a) }}{{ end }}",
            "{{ if .Values.a | not }}{{ end }}",
            "{{ $a := .Values.a }}{{ if or $a .x }}{{ end }}",
        ] {
            let found = paths(text);
            assert_eq!((found.has(&["a"]), found.has(&["a", "b"])), (true, false), "{text}");
        }
    }

    #[test]
    fn a_variable_stands_for_the_values_that_it_is_set_to() {
        let found = paths(
            "{{ if $v := .Values.a }}{{ end }}{{ $v := .Values.b }}{{ if .x }}{{ $v = .Values.c }}{{ end }}{{ $v.d }}",
        );
        assert_eq!(["a", "b", "c"].map(|of| found.has(&[of, "d"])), [false, true, true]);
    }
}
