//! The instructions of a pickle, one after the other.

use std::io::BufRead;

use super::error::{PickleError, Problem};
use super::input::Input;
use super::literal;
use super::machine::{FALSE, Machine, NONE, TRUE};
use super::node::{Node, NodeId};
use super::{Limits, opcode};

/// The newest protocol.
const NEWEST: u8 = 5;

/// Follows the instructions to STOP: all nodes, and the one that stands for the whole.
pub fn parse<R: BufRead + ?Sized>(
    input: &mut Input<'_, R>,
    limits: &Limits,
) -> Result<(Vec<Node>, NodeId), PickleError> {
    let mut machine = Machine::new(limits).map_err(|problem| PickleError { at: 0, problem })?;
    loop {
        let at = input.position();
        let fail = |problem| PickleError { at, problem };
        match input.byte().map_err(fail)? {
            opcode::STOP => return machine.finish().map_err(fail),
            code => step(code, input, &mut machine).map_err(fail)?,
        }
    }
}

/// Follows one instruction.
fn step<R: BufRead + ?Sized>(code: u8, input: &mut Input<'_, R>, machine: &mut Machine) -> Result<(), Problem> {
    match code {
        opcode::PROTO => match input.byte()? {
            0..=NEWEST => Ok(()),
            newer => Err(Problem::Protocol(newer)),
        },
        // Frames are there for readers that want to fetch many instructions at once.
        opcode::FRAME => input.array::<8>().map(drop),

        opcode::NONE => machine.push(NONE),
        opcode::NEWTRUE => machine.push(TRUE),
        opcode::NEWFALSE => machine.push(FALSE),
        opcode::INT | opcode::LONG => integer_in_text(code, input, machine),
        opcode::BININT => int(machine, i32::from_le_bytes(input.array()?)),
        opcode::BININT1 => int(machine, input.byte()?),
        opcode::BININT2 => int(machine, u16::from_le_bytes(input.array()?)),
        opcode::LONG1 | opcode::LONG4 => {
            let bytes = string(input, machine, if code == opcode::LONG1 { Length::U8 } else { Length::I32 })?;
            machine.push_new(literal::integer(bytes))
        }
        opcode::FLOAT => machine.push_new(Node::Float(literal::float(input.line()?)?)),
        opcode::BINFLOAT => machine.push_new(Node::Float(f64::from_be_bytes(input.array()?))),

        opcode::STRING => {
            let string = literal::quoted(input.line()?)?;
            machine.budget.take_piece(string.len())?;
            machine.push_new(Node::OldString(string.into()))
        }
        opcode::SHORT_BINSTRING => old_string(input, machine, Length::U8),
        opcode::BINSTRING => old_string(input, machine, Length::I32),
        opcode::UNICODE => machine.push_text(literal::raw_unicode(input.line()?)?),
        opcode::SHORT_BINUNICODE => text(input, machine, Length::U8),
        opcode::BINUNICODE => text(input, machine, Length::U32),
        opcode::BINUNICODE8 => text(input, machine, Length::U64),
        opcode::SHORT_BINBYTES => bytes(input, machine, Length::U8),
        opcode::BINBYTES => bytes(input, machine, Length::U32),
        opcode::BINBYTES8 => bytes(input, machine, Length::U64),
        opcode::BYTEARRAY8 => {
            let string = string(input, machine, Length::U64)?;
            machine.push_new(Node::ByteArray(string.into()))
        }

        opcode::GLOBAL | opcode::INST => global_in_text(code, input, machine),
        opcode::PERSID => {
            machine.push_text(name(input.line()?)?.to_owned())?;
            machine.persistent()
        }
        opcode::PUT => machine.remember(literal::index(input.line()?)?),
        opcode::BINPUT => machine.remember(input.byte()?.into()),
        opcode::LONG_BINPUT => machine.remember(u32::from_le_bytes(input.array()?)),
        opcode::GET => machine.recall(literal::index(input.line()?)?),
        opcode::BINGET => machine.recall(input.byte()?.into()),
        opcode::LONG_BINGET => machine.recall(u32::from_le_bytes(input.array()?)),

        opcode::EXT1 | opcode::EXT2 | opcode::EXT4 => Err(Problem::Extension),
        opcode::NEXT_BUFFER | opcode::READONLY_BUFFER => Err(Problem::OutOfBand),
        _ => rearrange(code, machine),
    }
}

/// Follows an instruction that is a single byte: it works on what is on the stack.
fn rearrange(code: u8, machine: &mut Machine) -> Result<(), Problem> {
    match code {
        opcode::MARK => machine.mark(),
        opcode::POP => machine.drop_top(),
        opcode::POP_MARK => machine.drop_to_mark(),
        opcode::DUP => machine.push(machine.top()?),
        opcode::MEMOIZE => machine.remember_next(),

        opcode::EMPTY_TUPLE => machine.tuple(0),
        opcode::TUPLE1 => machine.tuple(1),
        opcode::TUPLE2 => machine.tuple(2),
        opcode::TUPLE3 => machine.tuple(3),
        opcode::TUPLE => {
            let elements = machine.take_to_mark()?;
            machine.push_new(Node::Tuple(elements.into()))
        }
        opcode::EMPTY_LIST => machine.push_new(Node::List(Vec::new())),
        opcode::LIST => {
            let elements = machine.take_to_mark()?;
            machine.push_new(Node::List(elements))
        }
        opcode::EMPTY_SET => machine.push_new(Node::Set(Vec::new())),
        opcode::FROZENSET => {
            let elements = machine.take_to_mark()?;
            machine.push_new(Node::FrozenSet(elements.into()))
        }
        opcode::EMPTY_DICT => machine.push_new(Node::Dict(Vec::new())),
        opcode::DICT => machine.dict(),
        opcode::APPEND => machine.append(machine.height_of(1)?, false),
        opcode::APPENDS | opcode::ADDITEMS => {
            let from = machine.take_mark()?;
            machine.append(from, code == opcode::ADDITEMS)
        }
        opcode::SETITEM => machine.set(machine.height_of(2)?),
        opcode::SETITEMS => {
            let from = machine.take_mark()?;
            machine.set(from)
        }

        opcode::STACK_GLOBAL => {
            let global = machine.global_from_stack()?;
            machine.push(global)
        }
        opcode::REDUCE | opcode::NEWOBJ => {
            let (arguments, callable) = (machine.pop()?, machine.pop()?);
            machine.call(callable, arguments, None)
        }
        opcode::NEWOBJ_EX => {
            let (keywords, arguments, class) = (machine.pop()?, machine.pop()?, machine.pop()?);
            machine.call(class, arguments, Some(keywords))
        }
        opcode::OBJ => machine.call_with_marked(None),
        opcode::BUILD => {
            let state = machine.pop()?;
            machine.build(state)
        }
        opcode::BINPERSID => machine.persistent(),
        unknown => Err(Problem::UnknownInstruction(unknown)),
    }
}

fn int(machine: &mut Machine, value: impl Into<i64>) -> Result<(), Problem> {
    machine.push_new(Node::Int(value.into()))
}

/// INT, which also writes bools, and LONG.
fn integer_in_text<R: BufRead + ?Sized>(
    code: u8,
    input: &mut Input<'_, R>,
    machine: &mut Machine,
) -> Result<(), Problem> {
    match input.line()? {
        b"00" if code == opcode::INT => machine.push(FALSE),
        b"01" if code == opcode::INT => machine.push(TRUE),
        line => {
            let integer = literal::decimal(line)?;
            if let Node::WideInt(bytes) = &integer {
                machine.budget.take_piece(bytes.len())?;
            }
            machine.push_new(integer)
        }
    }
}

/// GLOBAL, and INST, which also calls it.
fn global_in_text<R: BufRead + ?Sized>(
    code: u8,
    input: &mut Input<'_, R>,
    machine: &mut Machine,
) -> Result<(), Problem> {
    let module = name(input.line()?)?.into();
    let global = machine.global(module, name(input.line()?)?.into())?;
    if code == opcode::INST { machine.call_with_marked(Some(global)) } else { machine.push(global) }
}

/// The name of a module, a class, an object.
fn name(line: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(line).map_err(|_| Problem::Malformed("a name"))
}

/// How an instruction writes the length of a string.
#[derive(Clone, Copy)]
enum Length {
    U8,
    U32,
    I32,
    U64,
}

/// A length and as many bytes.
fn string<R: BufRead + ?Sized>(
    input: &mut Input<'_, R>,
    machine: &mut Machine,
    length: Length,
) -> Result<Vec<u8>, Problem> {
    let length = match length {
        Length::U8 => input.byte()?.into(),
        Length::U32 => u32::from_le_bytes(input.array()?).into(),
        Length::U64 => u64::from_le_bytes(input.array()?),
        Length::I32 => {
            let length = i32::from_le_bytes(input.array()?);
            u64::try_from(length).map_err(|_| Problem::NegativeLength(length))?
        }
    };
    input.bytes(length, &mut machine.budget)
}

fn old_string<R: BufRead + ?Sized>(
    input: &mut Input<'_, R>,
    machine: &mut Machine,
    length: Length,
) -> Result<(), Problem> {
    let string = string(input, machine, length)?;
    machine.push_new(Node::OldString(string.into()))
}

fn bytes<R: BufRead + ?Sized>(input: &mut Input<'_, R>, machine: &mut Machine, length: Length) -> Result<(), Problem> {
    let string = string(input, machine, length)?;
    machine.push_new(Node::Bytes(string.into()))
}

fn text<R: BufRead + ?Sized>(input: &mut Input<'_, R>, machine: &mut Machine, length: Length) -> Result<(), Problem> {
    let string = string(input, machine, length)?;
    match String::from_utf8(string) {
        Ok(text) => machine.push_new(Node::Text(text.into())),
        Err(error) => {
            // A byte that is wrong becomes the three of U+FFFD, and the text moves while it grows.
            machine.budget.check(error.as_bytes().len() as u64 * 8)?;
            machine.push_text(String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
    }
}
