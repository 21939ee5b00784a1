//! Parses rules in the format of `iptables-save` and `iptables-restore`.

use std::collections::BTreeMap;

use super::condition::Condition;
use super::error::{Error, MAX_BYTES};
use super::target::Target;
use super::words::{OMITTED, Words};

/// The rules of one family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ruleset {
    chains: BTreeMap<(String, String), Chain>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Chain {
    /// Whether packets that reach the end of this built-in chain are dropped.
    pub(super) drops: bool,
    pub(super) rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// Matches and target as in the input.
    pub(super) text: String,
    pub(super) conditions: Vec<Condition>,
    pub(super) target: Target,
}

impl Ruleset {
    /// Parses the rules of one family.
    ///
    /// # Errors
    /// Fails at the first invalid line, or if the input is too large.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_BYTES {
            return Err(Error::Large);
        }
        let mut parser = Parser { chains: BTreeMap::new(), table: None };
        for (index, line) in text.lines().enumerate() {
            let at_line = |reason| Error::Line { number: index + 1, reason: Box::new(reason) };
            parser.line(line.trim()).map_err(at_line)?;
        }
        Ok(parser.finish())
    }

    pub(super) fn chain(&self, table: &str, chain: &str) -> Option<&Chain> {
        self.chains.get(&(table.to_owned(), chain.to_owned()))
    }
}

#[derive(Default)]
struct DraftChain {
    drops: bool,
    rules: Vec<DraftRule>,
}

/// A rule whose target may be a chain that is declared later.
struct DraftRule {
    text: String,
    conditions: Vec<Condition>,
    target: Option<DraftTarget>,
}

struct DraftTarget {
    name: String,
    /// `-g` instead of `-j`.
    goto: bool,
    options: Vec<(String, Vec<String>)>,
}

struct Parser {
    chains: BTreeMap<(String, String), DraftChain>,
    table: Option<String>,
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<(), Error> {
        if line.is_empty() || line.starts_with('#') || line == "COMMIT" {
            return Ok(());
        }
        if let Some(table) = line.strip_prefix('*') {
            self.table = Some(table.trim().to_owned());
            return Ok(());
        }
        if let Some(declared) = line.strip_prefix(':') {
            let mut words = declared.split_whitespace();
            let name = words.next().ok_or_else(|| Error::Syntax(line.to_owned()))?;
            let drops = words.next() == Some("DROP");
            self.chain(name)?.drops = drops;
            return Ok(());
        }
        // `iptables-save -c` puts counters before each rule.
        let command = match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((_, rest)) => rest.trim_start(),
            None => line,
        };
        self.command(command)
    }

    fn command(&mut self, line: &str) -> Result<(), Error> {
        let mut words = Words::split(line);
        let command = words.next().unwrap_or_default();
        let name = words.next().ok_or_else(|| Error::Syntax(line.to_owned()))?;
        match command.as_str() {
            "-N" | "--new-chain" => self.chain(&name).map(drop),
            "-A" | "--append" => {
                let rule = rule(words)?;
                self.chain(&name)?.rules.push(rule);
                Ok(())
            }
            "-I" | "--insert" => {
                let position = match words.peek() {
                    Some(word) if !word.starts_with(['-', '!']) => words.next(),
                    _ => None,
                };
                let place = position.map_or(Ok(1), |word| word.parse().map_err(|_| Error::Position(word)));
                let place: usize = place?;
                let rule = rule(words)?;
                let rules = &mut self.chain(&name)?.rules;
                rules.insert(place.saturating_sub(1).min(rules.len()), rule);
                Ok(())
            }
            other if other.starts_with('-') => Err(Error::Command(other.to_owned())),
            _ => Err(Error::Syntax(line.to_owned())),
        }
    }

    fn chain(&mut self, name: &str) -> Result<&mut DraftChain, Error> {
        let table = self.table.clone().ok_or(Error::NoTable)?;
        Ok(self.chains.entry((table, name.to_owned())).or_default())
    }

    /// Resolves targets, now that all chains are known.
    fn finish(self) -> Ruleset {
        let names: Vec<(String, String)> = self.chains.keys().cloned().collect();
        let is_chain = |table: &str, name: &str| names.iter().any(|(t, n)| t == table && n == name);
        let resolve = |table: &str, draft: DraftRule| {
            let target =
                draft.target.map_or(Target::Continue, |DraftTarget { name, goto, options }| {
                    match Target::parse(&name, &options, is_chain(table, &name)) {
                        Target::Jump(chain) if goto => Target::Goto(chain),
                        target => target,
                    }
                });
            Rule { text: draft.text, conditions: draft.conditions, target }
        };
        let chains = self.chains.into_iter().map(|((table, name), DraftChain { drops, rules })| {
            let rules = rules.into_iter().map(|rule| resolve(&table, rule)).collect();
            ((table, name), Chain { drops, rules })
        });
        Ruleset { chains: chains.collect() }
    }
}

/// Parses the arguments after the chain's name.
fn rule(mut words: Words<'_>) -> Result<DraftRule, Error> {
    let mut rule = DraftRule { text: words.rest().to_owned(), conditions: Vec::new(), target: None };
    let (mut module, mut negated) = (String::new(), false);
    while let Some(word) = words.next() {
        match (word.as_str(), &mut rule.target) {
            ("!", _) => negated = true,
            ("-j" | "--jump" | "-g" | "--goto", target) => {
                let goto = word.starts_with("-g") || word == "--goto";
                let name = words.next().ok_or_else(|| Error::Value { text: word.clone() })?;
                // A native rule with two statements is printed with two targets, which together are unknown here.
                let name = target.take().map_or(name.clone(), |first| format!("{} -j {name}", first.name));
                *target = Some(DraftTarget { name, goto, options: Vec::new() });
            }
            (_, Some(target)) => target.options.push((word, words.values())),
            ("-m" | "--match", None) => {
                module = words.next().unwrap_or_default();
                if matches!(words.peek(), None | Some("-j" | "-g" | "-m")) && !NAMES_PROTOCOL.contains(&&*module) {
                    rule.conditions.push(Condition::unknown(format!("-m {module}")));
                }
            }
            ("--comment", None) => drop(words.values()),
            (name, None) if name.starts_with('-') => {
                rule.conditions.push(Condition::parse(negated, name, &module, &mut words)?);
                negated = false;
            }
            (OMITTED, None) if module == "comment" => {}
            (OMITTED, None) => rule.conditions.push(Condition::unknown(format!("-m {module} {OMITTED}"))),
            (_, None) => rule.conditions.push(Condition::unknown(word)),
        }
    }
    Ok(rule)
}

/// Extensions that without options have no condition, or only a condition on the protocol.
const NAMES_PROTOCOL: [&str; 3] = ["tcp", "udp", "comment"];

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Ruleset::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_invalid_line_is_named_with_its_number() {
        assert_eq!(
            error("*nat\n-F OUTPUT"),
            "line 2: `-F` is not a command in the format of iptables-save: pass the output of iptables-save"
        );
        assert_eq!(error("-A OUTPUT -j RETURN"), "line 1: expected a table, such as `*nat`, before this line");
        assert_eq!(error("*nat\n-A OUTPUT --dport http -j RETURN"), "line 2: the value of `--dport http` is invalid");
        assert_eq!(
            error("*nat\n-A OUTPUT ! -d 10.0.0.0/33 -j RETURN"),
            "line 2: the value of `! -d 10.0.0.0/33` is invalid"
        );
        assert_eq!(
            error("*nat\n-I OUTPUT first -j RETURN"),
            "line 2: \"first\" is not a rule number: expected 1 or more"
        );
        assert!(error("table ip nat {").starts_with("line 1: expected a line of iptables-save"));
        assert_eq!(Ruleset::parse(&" ".repeat(MAX_BYTES + 1)), Err(Error::Large));
    }

    #[test]
    fn counters_quotes_and_inserts_are_read() {
        let text = "*nat\n:OUTPUT ACCEPT [1:60]\n[1:60] -A OUTPUT -m comment --comment \"a \\\"b\\\" -j c\" -j RETURN\n\
                    -I OUTPUT -j ACCEPT\n-I OUTPUT 2 -j DROP\nCOMMIT";
        let rules = Ruleset::parse(text).unwrap();
        let targets: Vec<_> =
            rules.chain("nat", "OUTPUT").unwrap().rules.iter().map(|rule| rule.target.clone()).collect();
        assert_eq!(targets, [Target::Accept, Target::Drop, Target::Return]);
        assert!(rules.chain("nat", "OUTPUT").unwrap().rules.iter().all(|rule| rule.conditions.is_empty()));
    }
}
