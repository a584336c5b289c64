//! Parser of the workload language.

use std::ops::RangeInclusive;

use winnow::ascii::{alpha1, digit1, multispace1, till_line_ending};
use winnow::combinator::{alt, cut_err, eof, fail, opt, preceded, repeat, repeat_till, terminated};
use winnow::error::{ContextError, StrContext, StrContextValue};
use winnow::stream::Stream as _;
use winnow::{ModalResult, Parser};

use super::ast::{AgeBand, Choice, Section, Statement, Workload};

/// Error in a workload's text, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Expected and actual text.
    pub message: String,
}

/// Most bytes a lump in the journal can have.
const MOST_EMBEDDED: u64 = 65_535;

/// No store takes lumps as long as this; the bound keeps sums of sizes from overflowing.
const MOST_BYTES: u64 = 1 << 32;

/// How deep `times` may nest.
const MOST_NESTED: usize = 64;

impl Workload {
    /// Reads a workload.
    ///
    /// # Errors
    /// The text is not a workload; the error says where and what was expected.
    pub fn parse(text: &str) -> Result<Workload, ParseError> {
        workload.parse(text).map_err(|error| {
            let offset = error.offset();
            describe(text, offset, error.inner())
        })
    }
}

fn describe(text: &str, offset: usize, error: &ContextError) -> ParseError {
    let offset = text.floor_char_boundary(offset);
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let mut expected: Vec<String> = Vec::new();
    let mut note = None;
    for context in error.context() {
        match context {
            StrContext::Expected(value) if expected.len() < 8 => expected.push(value.to_string()),
            StrContext::Label(label) => note = note.or(Some(*label)),
            _ => {}
        }
    }
    let found = text[offset..].chars().next();
    let found = match found {
        None => "the end of the text".to_owned(),
        Some('\n' | '\r') => "the end of the line".to_owned(),
        Some(_) => {
            let word: String = text[offset..]
                .chars()
                .take_while(|c| !c.is_whitespace())
                .take(20)
                .collect();
            format!("`{word}`")
        }
    };
    let message = match note {
        Some(note) => format!("{note}, at {found}"),
        None if expected.is_empty() => format!("{found} was not expected"),
        None => format!("expected {}, found {found}", expected.join(" or ")),
    };
    ParseError {
        line: before.matches('\n').count() + 1,
        column: text[line_start..offset].chars().count() + 1,
        message,
    }
}

fn workload(input: &mut &str) -> ModalResult<Workload> {
    space(input)?;
    let seed = opt(preceded("Seed", cut_err((sign(":"), number, sign(";")))))
        .map(|seed| seed.map_or(0, |(_, seed, _)| seed))
        .parse_next(input)?;
    let (first, mut rest, _): (Section, Vec<Section>, _) = (section, repeat(0.., section), end)
        .map(|(first, rest, end)| (first, rest, end))
        .parse_next(input)?;
    rest.insert(0, first);
    Ok(Workload {
        seed,
        sections: rest,
    })
}

fn end(input: &mut &str) -> ModalResult<()> {
    eof.void()
        .context(StrContext::Expected(StrContextValue::Description(
            "a section or the end",
        )))
        .parse_next(input)
}

fn section(input: &mut &str) -> ModalResult<Section> {
    let kind = alt(("Command", "Ordered", "Unordered"))
        .context(expected_literal("Command"))
        .context(expected_literal("Ordered"))
        .context(expected_literal("Unordered"))
        .parse_next(input)?;
    if kind == "Command" {
        return cut_err(block(0)).map(Section::Command).parse_next(input);
    }
    let count = cut_err((sign("["), number, sign("]"), sign("{")))
        .map(|(_, count, _, _)| count)
        .parse_next(input)?;
    let (choices, _): (Vec<Choice>, _) =
        cut_err(repeat_till(0.., choice, sign("}"))).parse_next(input)?;
    Ok(match kind {
        "Ordered" => Section::Ordered { count, choices },
        _ => Section::Unordered { count, choices },
    })
}

/// `<50%> statement;` or `<50%> { statements };`
fn choice(input: &mut &str) -> ModalResult<Choice> {
    let percent = preceded("<", cut_err(preceded(space, number)))
        .context(expected_literal("<percent%>"))
        .parse_next(input)?;
    let Ok(percent) = u8::try_from(percent) else {
        return refuse(input, "a share can be 255 % at most");
    };
    cut_err((sign("%"), sign(">"))).parse_next(input)?;
    let body = if input.starts_with('{') {
        cut_err(terminated(block(0), sign(";"))).parse_next(input)?
    } else {
        vec![cut_err(terminated(statement(0), sign(";"))).parse_next(input)?]
    };
    Ok(Choice { percent, body })
}

/// `{ statement; statement; ... }`
fn block<'i>(
    depth: usize,
) -> impl Parser<&'i str, Vec<Statement>, winnow::error::ErrMode<ContextError>> {
    move |input: &mut &'i str| {
        cut_err(sign("{")).parse_next(input)?;
        if depth > MOST_NESTED {
            return refuse(input, "blocks are nested too deeply");
        }
        let (body, _) = repeat_till(
            0..,
            terminated(statement(depth), cut_err(sign(";"))),
            sign("}"),
        )
        .parse_next(input)?;
        Ok(body)
    }
}

fn statement<'i>(
    depth: usize,
) -> impl Parser<&'i str, Statement, winnow::error::ErrMode<ContextError>> {
    move |input: &mut &'i str| {
        if input.starts_with(|c: char| c.is_ascii_digit()) {
            let count = terminated(number, (cut_err(sign(".")), cut_err(sign("times"))))
                .parse_next(input)?;
            let body = block(depth + 1).parse_next(input)?;
            return Ok(Statement::Times(count, body));
        }
        let start = input.checkpoint();
        let word = terminated(alpha1, space)
            .context(StrContext::Expected(StrContextValue::Description(
                "a command",
            )))
            .context(expected_literal("}"))
            .parse_next(input)?;
        match word {
            "New" => cut_err(size).map(Statement::New).parse_next(input),
            "OverWrite" => cut_err(size).map(Statement::OverWrite).parse_next(input),
            "Embed" => cut_err(embedded_size)
                .map(Statement::Embed)
                .parse_next(input),
            "Get" => band_or_all.map(Statement::Get).parse_next(input),
            "Delete" => band_or_all.map(Statement::Delete).parse_next(input),
            "DeleteRange" => cut_err(band).map(Statement::DeleteRange).parse_next(input),
            _ => {
                input.reset(&start);
                refuse(
                    input,
                    "a command is New(SIZE), OverWrite(SIZE), Embed(SIZE), Get, Get(A, B), Delete, \
                     Delete(A, B), DeleteRange(A, B) or N.times { ... }",
                )
            }
        }
    }
}

/// `(4096)`, `(512K)`, `(1M)`, `(2G)`
fn size(input: &mut &str) -> ModalResult<u64> {
    sign("(").parse_next(input)?;
    let count = number(input)?;
    let start = input.checkpoint();
    let unit = opt(terminated(alpha1, space)).parse_next(input)?;
    let shift = match unit {
        None => 0,
        Some("K") => 10,
        Some("M") => 20,
        Some("G") => 30,
        Some(_) => {
            input.reset(&start);
            return refuse(input, "a unit is K, M or G (powers of 1024)");
        }
    };
    let bytes = match count.checked_mul(1 << shift) {
        Some(bytes) if bytes <= MOST_BYTES => bytes,
        _ => return refuse(input, "a lump can have 4 GiB at most"),
    };
    sign(")").parse_next(input)?;
    Ok(bytes)
}

fn embedded_size(input: &mut &str) -> ModalResult<u64> {
    let start = input.checkpoint();
    let bytes = size(input)?;
    if bytes > MOST_EMBEDDED {
        input.reset(&start);
        return refuse(input, "a lump in the journal can have 65,535 bytes at most");
    }
    Ok(bytes)
}

fn band_or_all(input: &mut &str) -> ModalResult<AgeBand> {
    if input.starts_with('(') {
        cut_err(band).parse_next(input)
    } else {
        Ok(AgeBand::ALL)
    }
}

/// `(1, 5)`: percent from the oldest.
fn band(input: &mut &str) -> ModalResult<AgeBand> {
    sign("(").parse_next(input)?;
    let from = percent(
        input,
        0..=100,
        "a percentage is 0 to 100 (0: the oldest lump)",
    )?;
    sign(",").parse_next(input)?;
    let to = percent(
        input,
        from..=100,
        "the second percentage is at least the first, at most 100",
    )?;
    sign(")").parse_next(input)?;
    Ok(AgeBand { from, to })
}

fn percent(
    input: &mut &str,
    allowed: RangeInclusive<u8>,
    otherwise: &'static str,
) -> ModalResult<u8> {
    let start = input.checkpoint();
    match u8::try_from(number(input)?) {
        Ok(percent) if allowed.contains(&percent) => Ok(percent),
        _ => {
            input.reset(&start);
            refuse(input, otherwise)
        }
    }
}

fn number(input: &mut &str) -> ModalResult<u64> {
    let start = input.checkpoint();
    let digits: &str = terminated(digit1, space)
        .context(StrContext::Expected(StrContextValue::Description(
            "a number",
        )))
        .parse_next(input)?;
    match digits.parse() {
        Ok(number) => Ok(number),
        Err(_) => {
            input.reset(&start);
            refuse(input, "a number must be below 2^64")
        }
    }
}

/// A sign or keyword and the space after it.
fn sign<'i>(
    literal: &'static str,
) -> impl Parser<&'i str, (), winnow::error::ErrMode<ContextError>> {
    preceded(space, terminated(literal, space))
        .void()
        .context(expected_literal(literal))
}

/// White space and comments, possibly none.
fn space(input: &mut &str) -> ModalResult<()> {
    repeat(
        0..,
        alt((multispace1.void(), ("#", till_line_ending).void())),
    )
    .parse_next(input)
}

fn expected_literal(literal: &'static str) -> StrContext {
    StrContext::Expected(StrContextValue::StringLiteral(literal))
}

fn refuse<T>(input: &mut &str, why: &'static str) -> ModalResult<T> {
    cut_err(fail.context(StrContext::Label(why))).parse_next(input)
}

#[cfg(test)]
mod tests;
