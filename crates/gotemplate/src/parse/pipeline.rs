//! Pipelines, and the variables that they declare.

use super::{Fault, Parser};
use crate::error::Syntax;
use crate::lex::Token;
use crate::node::{Command, Operand, Pipe};

impl<'t> Parser<'t, '_> {
    /// Parses a pipeline up to the token `end`, which is consumed.
    pub(super) fn pipeline(&mut self, context: &'static str, end: Token<'_>) -> Result<Pipe, Fault> {
        self.skip_space();
        let start = self.at();
        let (names, declares) = self.declarations(context)?;
        let mut commands = Vec::new();
        loop {
            self.skip_space();
            match self.peek() {
                token if token == end => break,
                Token::Right
                | Token::Close
                | Token::Pipe
                | Token::Comma
                | Token::Assign
                | Token::Declare
                | Token::End => return self.unexpected(context),
                _ => commands.push(self.command()?),
            }
        }
        self.next += 1;
        if commands.is_empty() {
            return Err((Syntax::Empty(context), start));
        }
        let literal = |command: &Command| {
            !matches!(
                command.head,
                Operand::Field(..) | Operand::Variable(..) | Operand::Chain(..) | Operand::Call(..) | Operand::Pipe(_)
            )
        };
        match commands.iter().skip(1).position(literal) {
            Some(at) => Err((Syntax::NotExecutable(at + 2), start)),
            None => {
                let span = self.span(start);
                // The slots are determined after the commands are parsed: in the command of `$x := $x`, the name refers
                // to an earlier variable.
                let slots = names.iter().map(|name| self.slot(name, declares)).collect::<Result<_, _>>()?;
                Ok(Pipe { span, commands, slots, declares })
            }
        }
    }

    /// Parses `$x :=`, `$x =` or, for `range`, `$i, $x :=`; returns the names, and whether they are new.
    fn declarations(&mut self, context: &'static str) -> Result<(Vec<&'t str>, bool), Fault> {
        let start = self.next;
        let mut names = Vec::new();
        while let Token::Variable(name) = self.peek() {
            self.next += 1;
            self.skip_space();
            names.push(name);
            match self.peek() {
                Token::Declare | Token::Assign => return Ok((names, self.advance() == Token::Declare)),
                Token::Comma if context == "range" && names.len() == 1 => {
                    self.next += 1;
                    self.skip_space();
                }
                Token::Comma => return self.unexpected(context),
                _ if names.len() > 1 => return self.unexpected(context),
                _ => break,
            }
        }
        self.next = start;
        Ok((Vec::new(), false))
    }

    fn slot(&mut self, name: &'t str, declares: bool) -> Result<usize, Fault> {
        if declares {
            self.scope.push(name);
            return Ok(self.scope.len() - 1);
        }
        self.scope
            .iter()
            .rposition(|known| *known == name)
            .ok_or_else(|| (Syntax::Variable(name.to_owned()), self.at()))
    }
}
