//! The stack machine of a pickle: what its instructions do, with nodes in the place of objects.
//!
//! Everything that grows is paid for from the budget before it does.

use std::collections::HashMap;

use super::Limits;
use super::budget::Budget;
use super::error::Problem;
use super::node::{Call, Global, Node, NodeId};

/// What an object of the memo takes, while the table of all of them moves to a larger place, at most.
const MEMO_ENTRY: usize = 32;

/// Nodes that every pickle has: `None`, `False`, `True`, once each.
pub const NONE: NodeId = NodeId(0);
/// As [`NONE`].
pub const FALSE: NodeId = NodeId(1);
/// As [`NONE`].
pub const TRUE: NodeId = NodeId(2);

/// The machine.
pub struct Machine {
    pub budget: Budget,
    nodes: Vec<Node>,
    most_nodes: usize,
    stack: Vec<NodeId>,
    /// How high the stack was at each mark. What lies below the last is out of reach until an instruction takes it away.
    marks: Vec<usize>,
    memo: HashMap<u32, NodeId>,
}

impl Machine {
    /// A machine before the first instruction.
    pub fn new(limits: &Limits) -> Result<Self, Problem> {
        let mut machine = Self {
            budget: Budget::new(limits),
            nodes: Vec::new(),
            most_nodes: limits.nodes.min(u32::MAX as usize),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
        };
        for node in [Node::None, Node::Bool(false), Node::Bool(true)] {
            machine.add(node)?;
        }
        Ok(machine)
    }

    /// Ends: all nodes, and the one on top of the stack.
    pub fn finish(mut self) -> Result<(Vec<Node>, NodeId), Problem> {
        let root = self.pop()?;
        Ok((self.nodes, root))
    }

    fn add(&mut self, node: Node) -> Result<NodeId, Problem> {
        if self.nodes.len() >= self.most_nodes {
            return Err(Problem::TooManyNodes { limit: self.most_nodes });
        }
        self.budget.push(&mut self.nodes, node)?;
        Ok(NodeId(self.nodes.len() as u32 - 1))
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// Puts a node on the stack.
    pub fn push(&mut self, id: NodeId) -> Result<(), Problem> {
        self.budget.push(&mut self.stack, id)
    }

    /// Makes a node, whose own memory is paid for, and puts it on the stack.
    pub fn push_new(&mut self, node: Node) -> Result<(), Problem> {
        let id = self.add(node)?;
        self.push(id)
    }

    /// Puts a text on the stack.
    pub fn push_text(&mut self, text: String) -> Result<(), Problem> {
        self.budget.take_piece(text.len())?;
        self.push_new(Node::Text(text.into()))
    }

    /// The height below which nothing may be taken.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    /// The node on top.
    pub fn top(&self) -> Result<NodeId, Problem> {
        self.stack[self.floor()..].last().copied().ok_or(Problem::EmptyStack)
    }

    /// Takes the node on top.
    pub fn pop(&mut self) -> Result<NodeId, Problem> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Drops the node on top, or the mark if there is none above it.
    pub fn drop_top(&mut self) -> Result<(), Problem> {
        if self.stack.len() > self.floor() {
            self.stack.pop();
            Ok(())
        } else {
            self.marks.pop().map(drop).ok_or(Problem::EmptyStack)
        }
    }

    /// Sets a mark.
    pub fn mark(&mut self) -> Result<(), Problem> {
        self.budget.push(&mut self.marks, self.stack.len())
    }

    /// Takes the last mark away: what is on the stack from this height on was above it.
    pub fn take_mark(&mut self) -> Result<usize, Problem> {
        self.marks.pop().ok_or(Problem::NoMark)
    }

    /// Drops everything down to the last mark, and the mark.
    pub fn drop_to_mark(&mut self) -> Result<(), Problem> {
        let from = self.take_mark()?;
        self.stack.truncate(from);
        Ok(())
    }

    /// Takes everything on the stack from a height on.
    fn take_from(&mut self, from: usize) -> Result<Vec<NodeId>, Problem> {
        let mut taken = Vec::new();
        self.budget.grow(&mut taken, self.stack.len() - from)?;
        taken.extend(self.stack.drain(from..));
        Ok(taken)
    }

    /// Takes everything down to the last mark.
    pub fn take_to_mark(&mut self) -> Result<Vec<NodeId>, Problem> {
        let from = self.take_mark()?;
        self.take_from(from)
    }

    /// A tuple of the last few nodes.
    pub fn tuple(&mut self, length: usize) -> Result<(), Problem> {
        let elements = self.take_from(self.height_of(length)?)?;
        self.push_new(Node::Tuple(elements.into()))
    }

    /// A dict of all pairs down to the last mark.
    pub fn dict(&mut self) -> Result<(), Problem> {
        let from = self.take_mark()?;
        let (pairs, rest) = self.stack[from..].as_chunks();
        if !rest.is_empty() {
            return Err(Problem::Malformed("a dict with a key without a value"));
        }
        let mut dict = Vec::new();
        self.budget.grow(&mut dict, pairs.len())?;
        dict.extend(pairs.iter().map(|&[key, value]| (key, value)));
        self.stack.truncate(from);
        self.push_new(Node::Dict(dict))
    }

    /// Appends what is on the stack from a height on to the list below. `is_set`: adds it to the set below.
    pub fn append(&mut self, from: usize, is_set: bool) -> Result<(), Problem> {
        let target = self.below(from)?;
        let list = match &mut self.nodes[target.0 as usize] {
            Node::List(list) if !is_set => list,
            Node::Set(set) if is_set => set,
            Node::Call(call) => &mut call.items,
            other if is_set => return Err(mismatch("ADDITEMS", "a set", other)),
            other => return Err(mismatch("APPENDS", "a list", other)),
        };
        self.stack.drain(from..).try_for_each(|element| self.budget.push(list, element))
    }

    /// Sets what is on the stack from a height on, key and value in turns, in the dict below.
    pub fn set(&mut self, from: usize) -> Result<(), Problem> {
        let target = self.below(from)?;
        let dict = match &mut self.nodes[target.0 as usize] {
            Node::Dict(pairs) => pairs,
            Node::Call(call) => &mut call.pairs,
            other => return Err(mismatch("SETITEMS", "a dict", other)),
        };
        let (pairs, rest) = self.stack[from..].as_chunks();
        if !rest.is_empty() {
            return Err(Problem::Malformed("a dict with a key without a value"));
        }
        pairs.iter().try_for_each(|&[key, value]| self.budget.push(dict, (key, value)))?;
        self.stack.truncate(from);
        Ok(())
    }

    /// The height of the last few nodes.
    pub fn height_of(&self, count: usize) -> Result<usize, Problem> {
        self.stack.len().checked_sub(count).filter(|&from| from >= self.floor()).ok_or(Problem::EmptyStack)
    }

    /// The node below a height.
    fn below(&self, height: usize) -> Result<NodeId, Problem> {
        self.stack[self.floor()..height].last().copied().ok_or(Problem::EmptyStack)
    }

    /// A class or function by its name.
    pub fn global(&mut self, module: Box<str>, name: Box<str>) -> Result<NodeId, Problem> {
        for bytes in [module.len(), name.len(), size_of::<Global>()] {
            self.budget.take_piece(bytes)?;
        }
        self.add(Node::Global(Box::new(Global { module, name })))
    }

    /// A class or function by the two texts on top of the stack.
    pub fn global_from_stack(&mut self) -> Result<NodeId, Problem> {
        let (name, module) = (self.pop()?, self.pop()?);
        match (self.node(module), self.node(name)) {
            (Node::Text(module), Node::Text(name)) => {
                self.budget.check(module.len() as u64 + name.len() as u64)?;
                self.global(module.clone(), name.clone())
            }
            (Node::Text(_), other) | (other, _) => Err(mismatch("STACK_GLOBAL", "a text", other)),
        }
    }

    /// What a call would give.
    pub fn call(&mut self, callable: NodeId, arguments: NodeId, keywords: Option<NodeId>) -> Result<(), Problem> {
        let Node::Tuple(_) = self.node(arguments) else {
            return Err(mismatch("REDUCE", "a tuple of arguments", self.node(arguments)));
        };
        self.budget.take_piece(size_of::<Call>())?;
        let call = Call { callable, arguments, keywords, state: None, items: Vec::new(), pairs: Vec::new() };
        self.push_new(Node::Call(Box::new(call)))
    }

    /// What the call of a class with everything down to the last mark would give. The class comes first there, or is given.
    pub fn call_with_marked(&mut self, class: Option<NodeId>) -> Result<(), Problem> {
        let from = self.take_mark()?;
        let (class, first) = match class {
            Some(class) => (class, from),
            None => (*self.stack.get(from).ok_or(Problem::EmptyStack)?, from + 1),
        };
        let arguments = self.take_from(first)?;
        self.stack.truncate(from);
        let arguments = self.add(Node::Tuple(arguments.into()))?;
        self.call(class, arguments, None)
    }

    /// Gives the object on top of the stack its state.
    pub fn build(&mut self, state: NodeId) -> Result<(), Problem> {
        let target = self.top()?;
        match &mut self.nodes[target.0 as usize] {
            Node::Call(call) if call.state.is_none() => {
                call.state = Some(state);
                Ok(())
            }
            other => Err(mismatch("BUILD", "an object without a state", other)),
        }
    }

    /// Something outside the pickle.
    pub fn persistent(&mut self) -> Result<(), Problem> {
        let name = self.pop()?;
        self.push_new(Node::Persistent(name))
    }

    /// Remembers the node on top under an index.
    pub fn remember(&mut self, index: u32) -> Result<(), Problem> {
        let top = self.top()?;
        if !self.memo.contains_key(&index) {
            self.budget.take(MEMO_ENTRY)?;
        }
        self.memo.insert(index, top);
        Ok(())
    }

    /// Remembers the node on top under the number of those that were remembered before.
    pub fn remember_next(&mut self) -> Result<(), Problem> {
        self.remember(self.memo.len() as u32)
    }

    /// Puts the node that was remembered under an index on the stack.
    pub fn recall(&mut self, index: u32) -> Result<(), Problem> {
        let id = *self.memo.get(&index).ok_or(Problem::NoSuchMemo(index))?;
        self.push(id)
    }
}

fn mismatch(instruction: &'static str, needed: &'static str, found: &Node) -> Problem {
    Problem::Mismatch { instruction, needed, found: found.kind() }
}
