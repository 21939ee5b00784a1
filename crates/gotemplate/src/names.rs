//! The names in the expressions of a template, found in its tree without rendering it.

use std::collections::{BTreeMap, BTreeSet};

use super::node::{Branch, Command, Node, Operand, Pipe, Tree};
use super::{Template, node};

/// The names in all expressions of a template, also in branches that are never rendered, but not in named templates that it does not call.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The string constants.
    pub texts: BTreeSet<String>,
    /// The fields, whatever value they are fields of.
    pub fields: BTreeSet<String>,
    /// The functions.
    pub functions: BTreeSet<String>,
    /// The fields whose whole values are printed, or passed to `with`, `range` or a function other than a lookup.
    pub whole: BTreeSet<String>,
}

impl Template {
    /// Returns the names in the template. `lookups`: functions that read only the part of a value that their other
    /// arguments name, such as `index`.
    pub fn names(&self, lookups: &[&str]) -> Names {
        let mut finder = Finder { template: self, lookups, variables: BTreeMap::new(), names: Names::default() };
        finder.tree(&self.tree);
        finder.names
    }

    /// Whether text outside of actions contains `part`; named templates that the template does not call are ignored.
    pub fn has_text(&self, part: &str) -> bool {
        self.tree.called().into_iter().any(|nodes| has_text(nodes, part))
    }
}

fn has_text(nodes: &[Node], part: &str) -> bool {
    nodes.iter().any(|node| match node {
        Node::Text(text) => text.contains(part),
        Node::If(branch) | Node::With(branch) | Node::Range(branch) => {
            has_text(&branch.body, part) || has_text(&branch.otherwise, part)
        }
        Node::Action(_) | Node::Template(..) | Node::Break | Node::Continue => false,
    })
}

/// How much of an operand's value the template reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The template reads all of it.
    Whole,
    /// The template reads only what other arguments name, or whether the value is empty.
    Part,
}

struct Finder<'t> {
    template: &'t Template,
    lookups: &'t [&'t str],
    /// The fields that variables are set to, by slot.
    variables: BTreeMap<usize, BTreeSet<String>>,
    names: Names,
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
                Node::Action(pipe) if pipe.slots.is_empty() => self.pipe(pipe, Use::Whole),
                // What is read depends on how the variable is used.
                Node::Action(pipe) => self.pipe(pipe, Use::Part),
                Node::Template(_, _, Some(pipe)) => self.pipe(pipe, Use::Part),
                Node::If(branch) => self.branch(branch, Use::Part),
                Node::With(branch) | Node::Range(branch) => self.branch(branch, Use::Whole),
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
        for (at, command) in pipe.commands.iter().enumerate() {
            // What a command returns is an argument of the next one.
            let used = pipe.commands.get(at + 1).map_or(used, |next| self.of_arguments(next));
            self.command(command, used);
        }
        if pipe.declares {
            // The slot may have belonged to a variable whose scope has ended.
            pipe.slots.iter().for_each(|slot| drop(self.variables.remove(slot)));
        }
        if let [command] = &*pipe.commands
            && command.arguments.is_empty()
            && let Some(name) = self.field(&command.head)
        {
            for slot in &pipe.slots {
                self.variables.entry(*slot).or_default().insert(name.clone());
            }
        }
    }

    fn command(&mut self, command: &Command, used: Use) {
        let of_arguments = self.of_arguments(command);
        self.operand(&command.head, if command.arguments.is_empty() { used } else { Use::Whole });
        command.arguments.iter().for_each(|argument| self.operand(argument, of_arguments));
    }

    /// Returns how much of its arguments a command reads.
    fn of_arguments(&self, command: &Command) -> Use {
        match &command.head {
            Operand::Call(span, _) if self.lookups.contains(&self.function(*span)) => Use::Part,
            _ => Use::Whole,
        }
    }

    fn function(&self, span: node::Span) -> &str {
        self.template.text(span)
    }

    fn operand(&mut self, operand: &Operand, used: Use) {
        match operand {
            Operand::Text(text) => drop(self.names.texts.insert(text.to_string())),
            Operand::Field(_, fields) => self.names.fields.extend(fields.iter().map(ToString::to_string)),
            Operand::Variable(_, slot, fields) => {
                self.names.fields.extend(fields.iter().map(ToString::to_string));
                if fields.is_empty() && used == Use::Whole {
                    self.names.whole.extend(self.variables.get(slot).into_iter().flatten().cloned());
                }
            }
            Operand::Chain(_, of, fields) => {
                self.operand(of, Use::Part);
                self.names.fields.extend(fields.iter().map(ToString::to_string));
            }
            Operand::Call(span, _) => {
                let name = self.function(*span).to_owned();
                self.names.functions.insert(name);
            }
            Operand::Pipe(pipe) => self.pipe(pipe, used),
            Operand::Dot
            | Operand::Nil
            | Operand::Bool(_)
            | Operand::Int(_)
            | Operand::Float(_)
            | Operand::Unsupported(..) => {}
        }
        if let (Use::Whole, Some(name)) = (used, self.field(operand)) {
            self.names.whole.insert(name);
        }
    }

    /// Returns the last field of an operand that is a chain of fields.
    fn field(&self, operand: &Operand) -> Option<String> {
        match operand {
            Operand::Field(_, fields) | Operand::Variable(_, _, fields) | Operand::Chain(_, _, fields) => {
                fields.last().map(ToString::to_string)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Delims, Functions, Template};

    fn names(text: &str) -> [String; 4] {
        let functions = Functions::go().with_sprig();
        let names = Template::parse("t", text, Delims::BRACES, &functions).unwrap().names(&["index"]);
        [names.texts, names.fields, names.functions, names.whole]
            .map(|names| names.into_iter().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn texts_fields_and_functions_are_found_in_all_branches() {
        let text = "{{ define `d` }}{{ .A.B | printf `x` }}{{ end }}{{ if .C }}{{ template `d` . }}{{ end }}\
                    {{ if $.C }}{{ else }}{{ range $k, $v := (index .D `y`).E }}{{ $v.F | quote }}{{ end }}{{ end }}";
        assert_eq!(names(text), ["x y", "A B C D E F", "index printf quote", "B E F"]);
    }

    #[test]
    fn a_named_template_counts_if_it_is_called() {
        const DEFINED: &str =
            "{{ define `a` }}{{ .A }}{{ template `b` }}{{ end }}{{ define `b` }}{{ .B }}{{ template `a` }}{{ end }}";
        for (call, found) in [
            ("", ""),
            ("{{ define `c` }}{{ template `a` }}{{ end }}", ""),
            ("{{ template `a` }}", "A B"),
            ("{{ with .C }}{{ else }}{{ range .C }}{{ template `b` }}{{ end }}{{ end }}", "A B C"),
            ("{{ block `c` . }}{{ template `a` }}{{ end }}", "A B"),
        ] {
            assert_eq!(names(&format!("{DEFINED}{call}"))[1], found, "{call}");
        }
    }

    #[test]
    fn text_counts_outside_of_named_templates_that_are_not_called() {
        for (text, found) in [
            ("a: part", true),
            ("{{ if .A }}{{ else }}{{ range .B }}- part{{ end }}{{ end }}", true),
            ("{{ define `a` }}part{{ end }}{{ template `a` }}", true),
            ("{{ define `a` }}part{{ end }}", false),
            ("{{ `part` }}{{/* part */}}", false),
        ] {
            let template = Template::parse("t", text, Delims::BRACES, &Functions::go()).unwrap();
            assert_eq!(template.has_text("part"), found, "{text}");
        }
    }

    #[test]
    fn a_lookup_or_a_condition_reads_a_part_and_a_variable_stands_for_its_field() {
        let whole = |text: &str| names(text)[3].clone();
        for part in
            ["{{ if .A }}{{ end }}", "{{ index .A `k` }}", "{{ $a := .A }}{{ index $a `k` }}", "{{ `k` | index .A }}"]
        {
            assert_eq!(whole(part), "", "{part}");
        }
        for all in [
            "{{ .A }}",
            "{{ range .A }}{{ end }}",
            "{{ toJson .A }}",
            "{{ .A | toJson }}",
            "{{ $a := .A }}{{ range $a }}{{ end }}",
        ] {
            assert_eq!(whole(all), "A", "{all}");
        }
    }
}
