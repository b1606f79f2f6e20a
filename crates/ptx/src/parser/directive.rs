//! What stands at module level: the header, variables, functions and their directives.

use super::{Parsed, Parser};
use crate::ast::*;
use crate::lexer::Token;

impl Parser<'_> {
    /// The whole file.
    pub(super) fn module(&mut self) -> Parsed<Module> {
        // Without these the text is no PTX, and to go on would only bury that under more errors.
        let version = self.version()?;
        if !self.eat_dotted("target") {
            return Err(self.expected("`.target`"));
        }
        let target =
            self.comma_separated(|p| p.ident("an architecture or an option such as `sm_90`"))?;
        let mut address_size = 32;
        if self.eat_dotted("address_size") {
            let at = self.at;
            address_size = self.literal()?;
            if !matches!(address_size, 32 | 64) {
                self.error_at(at, "32 or 64");
            }
        }
        let mut items = Vec::new();
        while self.token() != Token::End {
            let start = self.at;
            if self.item(&mut items).is_err() {
                self.recover_item(start);
            }
            self.place_items(start, items.len());
        }
        Ok(Module {
            version,
            target,
            address_size,
            items,
        })
    }

    fn version(&mut self) -> Parsed<(u32, u32)> {
        if !self.eat_dotted("version") {
            return Err(self.expected("`.version`"));
        }
        let number = match self.token() {
            Token::Decimal => self.text().split_once('.'),
            _ => None,
        };
        match number.map(|(major, minor)| (major.parse(), minor.parse())) {
            Some((Ok(major), Ok(minor))) => {
                self.bump();
                Ok((major, minor))
            }
            _ => Err(self.expected("a version such as `8.0`")),
        }
    }

    fn item(&mut self, items: &mut Vec<Item>) -> Parsed<()> {
        const WHAT: &str = "a directive such as `.entry`, `.func` or `.global`";
        let linkage = match self.dotted() {
            Some("extern") => Linkage::Extern,
            Some("visible") => Linkage::Visible,
            Some("weak") => Linkage::Weak,
            Some("common") => Linkage::Common,
            _ => Linkage::Internal,
        };
        if linkage != Linkage::Internal {
            self.bump();
        }
        let Some(word) = self.dotted() else {
            return Err(self.expected(WHAT));
        };
        match word {
            "entry" | "func" => {
                let function = self.function(linkage)?;
                items.push(Item::Function(function));
                Ok(())
            }
            _ if Space::from_name(word).is_some() => {
                self.variables(linkage, |variable| items.push(Item::Variable(variable)))
            }
            _ if linkage != Linkage::Internal => {
                Err(self.expected("`.entry`, `.func` or a state space"))
            }
            "alias" => {
                self.bump();
                let pos = self.pos();
                let name = self.ident("a name")?;
                self.expect(Token::Comma)?;
                let aliasee = self.ident("the name of a function")?;
                items.push(Item::Alias { pos, name, aliasee });
                self.expect(Token::Semicolon)
            }
            "pragma" => {
                items.push(Item::Pragma(self.pragma()?));
                Ok(())
            }
            "file" => {
                items.push(self.file()?);
                Ok(())
            }
            "loc" => {
                items.push(Item::Loc(self.loc()?));
                Ok(())
            }
            "section" => {
                items.push(self.section()?);
                Ok(())
            }
            _ => Err(self.expected(WHAT)),
        }
    }

    /// Whether a directive stands here that only begins an item, and so also ends whatever is
    /// unfinished before it.
    pub(super) fn at_item(&self) -> bool {
        // Some of the words are modifiers too (`ld.weak`), but those stand close to what they
        // modify.
        let close = self.at > 0 && self.tokens[self.at - 1].end == self.tokens[self.at].start;
        !close
            && matches!(
                self.dotted(),
                Some(
                    "entry"
                        | "func"
                        | "visible"
                        | "extern"
                        | "weak"
                        | "common"
                        | "alias"
                        | "file"
                        | "section"
                        | "version"
                        | "target"
                )
            )
    }

    /// Goes on after an error in the item that began at `start`: past its `;` or its body, or at
    /// the next item.
    fn recover_item(&mut self, start: usize) {
        if self.at == start {
            self.bump();
        }
        loop {
            match self.token() {
                Token::End => return,
                Token::Semicolon | Token::CloseBrace => return self.bump(),
                Token::OpenBrace => {
                    self.skip_braces();
                    self.eat(Token::Semicolon);
                    return;
                }
                _ if self.at_item() => return,
                _ => self.bump(),
            }
        }
    }

    /// `.pragma "text", ...;`
    pub(super) fn pragma(&mut self) -> Parsed<Vec<String>> {
        self.bump();
        let texts = self.comma_separated(Self::string)?;
        self.expect(Token::Semicolon)?;
        Ok(texts)
    }

    /// A string without its quotes.
    pub(super) fn string(&mut self) -> Parsed<String> {
        if self.token() != Token::String {
            return Err(self.expected("a string"));
        }
        let text = self.text();
        self.bump();
        Ok(text[1..text.len() - 1].to_owned())
    }

    /// `.space ... name [= init] {, name [= init]};`, each name a variable of its own.
    pub(super) fn variables(
        &mut self,
        linkage: Linkage,
        mut each: impl FnMut(Variable),
    ) -> Parsed<()> {
        let declared = self.declaration(linkage)?;
        loop {
            let mut variable = declared.clone();
            self.declarator(&mut variable)?;
            if self.eat(Token::Equal) {
                variable.init = Some(self.init()?);
            }
            each(variable);
            if !self.eat(Token::Comma) {
                break;
            }
        }
        if self.token() != Token::Semicolon {
            return Err(self.expected("`,` or `;`"));
        }
        self.bump();
        Ok(())
    }

    /// What stands before the name: space, alignment, vector, type and attributes.
    fn declaration(&mut self, linkage: Linkage) -> Parsed<Variable> {
        let space = match self.dotted() {
            Some(word) => Space::from_name(word).inspect(|_| self.bump()),
            None => None,
        };
        let Some(space) = space else {
            return Err(self.expected("a state space such as `.param`"));
        };
        let mut variable = Variable {
            pos: Pos::default(),
            linkage,
            space,
            bank: None,
            align: None,
            vector: 1,
            ty: Type::Pred,
            ptr: None,
            attributes: Vec::new(),
            name: Ident::new(),
            range: None,
            dims: Vec::new(),
            init: None,
        };
        if space == Space::Const && self.eat(Token::OpenBracket) {
            variable.bank = Some(self.literal()?);
            self.expect(Token::CloseBracket)?;
        }
        loop {
            match self.dotted() {
                Some("align") => variable.align = Some(self.align()?),
                Some("attribute") => variable.attributes.extend(self.attributes()?),
                Some(vector @ ("v2" | "v4" | "v8")) => {
                    variable.vector = u32::from(vector.as_bytes()[1] - b'0');
                    self.bump();
                }
                _ => break,
            }
        }
        let Some(ty) = self.dotted().and_then(Type::from_name) else {
            return Err(self.expected("a type"));
        };
        variable.ty = ty;
        self.bump();
        if self.eat_dotted("ptr") {
            let space = self
                .dotted()
                .and_then(Space::from_name)
                .inspect(|_| self.bump());
            let align = if self.dotted() == Some("align") {
                Some(self.align()?)
            } else {
                None
            };
            variable.ptr = Some(PtrAttribute { space, align });
        }
        Ok(variable)
    }

    /// The name, with its range or its dimensions.
    fn declarator(&mut self, variable: &mut Variable) -> Parsed<()> {
        variable.pos = self.pos();
        variable.name = if self.eat(Token::Underscore) {
            "_".to_owned()
        } else {
            self.ident("a name")?
        };
        if self.eat(Token::Less) {
            variable.range = Some(self.literal()?);
            self.expect(Token::Greater)?;
        }
        while self.eat(Token::OpenBracket) {
            let dim = if self.token() == Token::CloseBracket {
                None
            } else {
                Some(self.unsigned()?)
            };
            variable.dims.push(dim);
            self.expect(Token::CloseBracket)?;
        }
        Ok(())
    }

    /// `.align n`
    fn align(&mut self) -> Parsed<u32> {
        self.bump();
        let at = self.at;
        let align: u32 = self.literal()?;
        if align.is_power_of_two() {
            Ok(align)
        } else {
            Err(self.error_at(at, "a power of two"))
        }
    }

    /// `.attribute(.managed, .unified(a, b))`
    fn attributes(&mut self) -> Parsed<Vec<Attribute>> {
        self.bump();
        self.expect(Token::OpenParen)?;
        let attributes = self.comma_separated(|p| {
            let Some(name) = p.dotted() else {
                return Err(p.expected("an attribute such as `.managed`"));
            };
            p.bump();
            let mut args = Vec::new();
            if p.eat(Token::OpenParen) {
                args = p.comma_separated(Self::wide_integer)?;
                p.expect(Token::CloseParen)?;
            }
            Ok(Attribute {
                name: name.to_owned(),
                args,
            })
        })?;
        self.expect(Token::CloseParen)?;
        Ok(attributes)
    }

    fn init(&mut self) -> Parsed<Init> {
        let pos = self.pos();
        match self.token() {
            Token::OpenBrace => self.nested(|p| {
                p.bump();
                let mut list = Vec::new();
                if p.token() != Token::CloseBrace {
                    list = p.comma_separated(Self::init)?;
                }
                if p.token() != Token::CloseBrace {
                    return Err(p.expected("`,` or `}`"));
                }
                p.bump();
                Ok(Init::List(list))
            }),
            Token::Ident if !self.at_warp_size() => self.address_of(pos, None),
            Token::Int if self.ahead(1) == Token::OpenParen => {
                let mask = self.literal()?;
                self.bump();
                let address = self.address_of(pos, Some(mask))?;
                self.expect(Token::CloseParen)?;
                Ok(address)
            }
            _ => Ok(Init::Value(self.expression("an initializer")?)),
        }
    }

    /// `symbol`, `generic(symbol)`, each with an offset.
    fn address_of(&mut self, pos: Pos, mask: Option<u64>) -> Parsed<Init> {
        let generic = self.text() == "generic" && self.ahead(1) == Token::OpenParen;
        if generic {
            self.bump();
            self.bump();
        }
        let symbol = self.ident("a symbol")?;
        if generic {
            self.expect(Token::CloseParen)?;
        }
        let offset = self.offset()?;
        Ok(Init::Address {
            pos,
            symbol,
            offset,
            generic,
            mask,
        })
    }

    fn function(&mut self, linkage: Linkage) -> Parsed<Function> {
        let kernel = self.dotted() == Some("entry");
        self.bump();
        let mut attributes = Vec::new();
        if self.dotted() == Some("attribute") {
            attributes = self.attributes()?;
        }
        let mut returns = Vec::new();
        if !kernel && self.token() == Token::OpenParen {
            returns = self.params()?;
        }
        let pos = self.pos();
        let name_at = self.at;
        let name = self.ident("the name of a function")?;
        let mut params = Vec::new();
        let list_at = self.at;
        if self.token() == Token::OpenParen {
            params = self.params()?;
        }
        let list_end = self.at;
        let directives = self.function_directives()?;
        self.place_function(name_at, list_at..list_end);
        let body = match self.token() {
            Token::Semicolon => {
                self.bump();
                None
            }
            Token::OpenBrace => {
                self.bump();
                Some(self.block()?)
            }
            _ => return Err(self.expected("`{`, `;` or a directive such as `.maxntid`")),
        };
        Ok(Function {
            pos,
            linkage,
            kernel,
            attributes,
            name,
            returns,
            params,
            directives,
            body,
        })
    }

    /// `(decl, decl)`, also `()`.
    pub(super) fn params(&mut self) -> Parsed<Vec<Variable>> {
        self.expect(Token::OpenParen)?;
        let mut params = Vec::new();
        if self.token() != Token::CloseParen {
            params = self.comma_separated(|p| {
                let mut variable = p.declaration(Linkage::Internal)?;
                p.declarator(&mut variable)?;
                Ok(variable)
            })?;
        }
        if self.token() != Token::CloseParen {
            return Err(self.expected("`,` or `)`"));
        }
        self.bump();
        Ok(params)
    }

    /// `.maxntid 256, 1, 1`, `.noreturn`, `.pragma "...";` and the like, as many as stand here.
    pub(super) fn function_directives(&mut self) -> Parsed<Vec<FunctionDirective>> {
        let mut directives = Vec::new();
        while let Some(word) = self.dotted() {
            match word {
                "pragma" => directives.push(FunctionDirective::Pragma(self.pragma()?)),
                "maxntid"
                | "reqntid"
                | "minnctapersm"
                | "maxnctapersm"
                | "maxnreg"
                | "local_maxnreg"
                | "noreturn"
                | "reqnctapercluster"
                | "maxclusterrank"
                | "explicitcluster"
                | "blocksareclusters"
                | "abi_preserve"
                | "abi_preserve_control" => {
                    self.bump();
                    let numbers = if self.token() == Token::Int {
                        self.comma_separated(Self::literal)?
                    } else {
                        Vec::new()
                    };
                    directives.push(FunctionDirective::Numbers(word.to_owned(), numbers));
                }
                _ => break,
            }
        }
        Ok(directives)
    }
}
