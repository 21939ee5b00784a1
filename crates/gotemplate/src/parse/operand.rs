//! Commands and their operands.

use super::{Fault, Parser, describe};
use crate::error::Syntax;
use crate::function::Function;
use crate::lex::Token;
use crate::literal::{self, Number};
use crate::node::{Command, Operand};

impl<'t> Parser<'t, '_> {
    /// Parses a command: operands separated by spaces. Consumes the `|` that ends it, if there is one.
    pub(super) fn command(&mut self) -> Result<Command, Fault> {
        let start = self.at();
        let head = self.operand()?;
        let mut arguments = Vec::new();
        while self.peek() == Token::Space {
            self.skip_space();
            if matches!(self.peek(), Token::Right | Token::Close | Token::Pipe) {
                break;
            }
            arguments.push(self.operand()?);
        }
        let span = self.span_to_here(start);
        match self.peek() {
            Token::Pipe => self.next += 1,
            Token::Right | Token::Close => {}
            _ => return self.unexpected("operand"),
        }
        Ok(Command { span, head, arguments })
    }

    /// Parses a term with the fields that follow it without a space.
    fn operand(&mut self) -> Result<Operand, Fault> {
        let start = self.at();
        let term = self.term()?;
        let mut fields: Vec<Box<str>> = Vec::new();
        while let Token::Field(name) = self.peek() {
            self.next += 1;
            fields.push(name.into());
        }
        let span = self.span_to_here(start);
        Ok(match term {
            Operand::Field(_, first) => Operand::Field(span, first.into_iter().chain(fields).collect()),
            Operand::Variable(_, slot, _) => Operand::Variable(span, slot, fields.into()),
            term if fields.is_empty() => term,
            term @ (Operand::Call(..) | Operand::Pipe(_)) => Operand::Chain(span, Box::new(term), fields.into()),
            _ => return Err((Syntax::Unexpected { found: "a field".to_owned(), context: "a literal" }, start)),
        })
    }

    fn term(&mut self) -> Result<Operand, Fault> {
        let at = self.at();
        let token = self.peek();
        self.next += 1;
        let bad = |text: &str| (Syntax::Literal(text.to_owned()), at);
        match token {
            Token::Dot => Ok(Operand::Dot),
            Token::Field(name) => Ok(Operand::Field((0, 0), Box::new([name.into()]))),
            Token::Variable(name) => self.variable(name, at),
            Token::Word("nil") => Ok(Operand::Nil),
            Token::Word("true") => Ok(Operand::Bool(true)),
            Token::Word("false") => Ok(Operand::Bool(false)),
            Token::Word(name) => self.call(name, at),
            Token::Number(text) => match literal::number(text).ok_or_else(|| bad(text))? {
                Number::Int(number) => Ok(Operand::Int(number)),
                Number::Float(number) => Ok(Operand::Float(number)),
                Number::Unsupported => Ok(Operand::Unsupported(self.span_to_here(at), text.into())),
            },
            Token::Char(text) => literal::character(text).map(Operand::Int).ok_or_else(|| bad(text)),
            Token::Quoted(text) => {
                literal::string(text).map(|text| Operand::Text(text.into())).ok_or_else(|| bad(text))
            }
            Token::Raw(text) => Ok(Operand::Text(text.replace('\r', "").into())),
            Token::Open => self
                .nested(|parser| parser.pipeline("parenthesized pipeline", Token::Close))
                .map(|pipe| Operand::Pipe(Box::new(pipe))),
            token => Err((Syntax::Unexpected { found: describe(token), context: "operand" }, at)),
        }
    }

    fn variable(&self, name: &'t str, at: usize) -> Result<Operand, Fault> {
        let slot = self
            .scope
            .iter()
            .rposition(|known| *known == name)
            .ok_or_else(|| (Syntax::Variable(name.to_owned()), at))?;
        Ok(Operand::Variable((0, 0), slot, Box::new([])))
    }

    fn call(&mut self, name: &str, at: usize) -> Result<Operand, Fault> {
        let keyword = matches!(
            name,
            "if" | "else" | "end" | "range" | "with" | "template" | "define" | "block" | "break" | "continue"
        );
        match self.functions.get(name) {
            Some(function) if !keyword => Ok(Operand::Call(self.span_to_here(at), function)),
            _ if keyword => Err((Syntax::Unexpected { found: format!("{name:?}"), context: "operand" }, at)),
            // An undefined function is not an error here: the template may be from a newer release, and the call in a
            // branch that is never rendered.
            _ => {
                self.undefined.insert(name.to_owned());
                Ok(Operand::Call(self.span_to_here(at), Function::undefined(name)))
            }
        }
    }
}
