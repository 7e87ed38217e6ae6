//! A pre-norm transformer block: x += attention(norm1 x), x += mlp(norm2 x).
//!
//! A block ends in the LayerNorm of whoever reads its output: the next block's first one, or the network's last one. On a
//! GPU the residual sum and that norm are one pass over the stream, so a block is handed the norm that follows it
//! ([`NextNorm`]) and hands over an [`Entry`]: the stream, and the normalised rows that the reader needs of it.
//!
//! Three forms. The full one serves every token. The last block of a network of which only the class token is read needs
//! keys and values of all tokens, but queries, projection and MLP of the class tokens only: the same numbers for a sixth of
//! the work. Where some tokens more are read, attention is of all of them, and what follows it of those that are read.

use tensor::ops::{self, Attended, GeluSaved};
use tensor::{ParamId, ParamSet, Rows, Tensor};

use crate::config::VitConfig;
use crate::drop_path::BlockChoice;
use crate::io::Kept;
use crate::layers::{BranchEnd, LayerNorm, Linear, NormSaved, ResidualBranch};
use crate::layout::Layout;

#[derive(Clone, Debug)]
pub(crate) struct Block {
    norm1: LayerNorm,
    qkv: Linear,
    proj: BranchEnd,
    norm2: LayerNorm,
    fc1: Linear,
    fc2: BranchEnd,
    heads: usize,
    dim: usize,
}

/// What the reader of a block's output starts from: the stream, and the rows of it that it reads, normalised.
#[derive(Debug)]
pub(crate) struct Entry {
    branch: ResidualBranch,
    norm: NormSaved,
}

impl Entry {
    /// What the derivative of the norm needs.
    pub fn into_norm(self) -> NormSaved {
        self.norm
    }
}

/// The LayerNorm that follows a block, and the rows that are read of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextNorm<'a> {
    pub norm: &'a LayerNorm,
    pub branch: &'a ResidualBranch,
}

impl NextNorm<'_> {
    /// The norm of a stream that no block hands over: the start of a network.
    pub fn enter(&self, p: &ParamSet, x: Tensor) -> Entry {
        let (normed, statistics) = self.norm.forward(p, &x, &self.branch.rows);
        Entry { branch: self.branch.clone(), norm: NormSaved { x, normed, statistics } }
    }
}

/// The branches of a block that are taken.
#[derive(Clone, Debug)]
pub(crate) struct Branches {
    attention: ResidualBranch,
    mlp: ResidualBranch,
}

/// A block and the branches of it that are taken.
#[derive(Clone, Debug)]
pub(crate) struct BlockOfStep<'a> {
    block: &'a Block,
    branches: Branches,
}

/// The last block of a network, of which all but keys and values is for the class tokens alone.
#[derive(Debug)]
pub(crate) struct LastOfStep<'a> {
    step: BlockOfStep<'a>,
    class: ClassRows,
}

/// The class tokens of a batch.
#[derive(Debug)]
struct ClassRows {
    /// Among all tokens.
    of_all: Rows,
    /// Those whose attention is taken, among the tokens that it reads.
    of_attention: Rows,
    /// The same among the class tokens.
    branch: ResidualBranch,
}

impl<'a> BlockOfStep<'a> {
    pub fn new(block: &'a Block, choice: Option<&BlockChoice>, rows: &Rows) -> Self {
        Self { block, branches: Branches { attention: attention_branch(choice, rows), mlp: mlp_branch(choice, rows) } }
    }

    /// With the branches of the forward pass, to compute it once more.
    pub fn with_branches(block: &'a Block, branches: Branches) -> Self {
        Self { block, branches }
    }

    pub fn rows(&self) -> impl Iterator<Item = &Rows> {
        [&self.branches.attention.rows, &self.branches.mlp.rows].into_iter()
    }

    /// The norm that this block begins with.
    pub fn first_norm(&self) -> NextNorm<'_> {
        NextNorm { norm: &self.block.norm1, branch: &self.branches.attention }
    }

    /// All tokens, up to the norm that follows.
    pub fn forward(&self, p: &ParamSet, entry: Entry, next: NextNorm<'_>) -> (Entry, BlockSaved) {
        let (activated, mut saved) = self.up_to_activations(p, entry);
        let mlp = &mut saved.mlp;
        let last = (&self.block.fc2, &activated);
        let norm = next.norm.after_branch(p, &mlp.norm.x, &mlp.branch, last, &next.branch.rows);
        mlp.hidden.keep(activated);
        (Entry { branch: next.branch.clone(), norm }, saved)
    }

    /// What the forward pass kept, from the block's input.
    pub fn recompute(&self, p: &ParamSet, x: Tensor) -> BlockSaved {
        let (activated, mut saved) = self.up_to_activations(p, self.first_norm().enter(p, x));
        saved.mlp.hidden.keep(activated);
        saved
    }

    /// All but the last layer, whose input is returned.
    fn up_to_activations(&self, p: &ParamSet, entry: Entry) -> (Tensor, BlockSaved) {
        let (block, Entry { branch, norm }) = (self.block, entry);
        let qkv = ops::linear(&norm.normed, &block.qkv.affine(p));
        let attended = ops::attention(&qkv, &branch.rows, block.heads);
        let mlp_branch = self.branches.mlp.clone();
        let middle = block.norm2.after_branch(p, &norm.x, &branch, (&block.proj, &attended.out), &mlp_branch.rows);
        let (activated, hidden) = ops::linear_gelu(&middle.normed, &block.fc1.affine(p));
        let attention = AttentionSaved { branch, norm, qkv, attended };
        (activated, BlockSaved { attention, mlp: MlpSaved { branch: mlp_branch, norm: middle, hidden } })
    }
}

impl<'a> LastOfStep<'a> {
    /// `class` has one row for each segment of `rows`.
    pub fn new(block: &'a Block, choice: Option<&BlockChoice>, rows: &Rows, class: &Rows) -> Self {
        let branches = Branches { attention: attention_branch(choice, rows), mlp: mlp_branch(choice, class) };
        let class = ClassRows {
            of_all: rows.first_of_each(),
            of_attention: branches.attention.rows.compact().first_of_each(),
            branch: attention_branch(choice, class),
        };
        Self { step: BlockOfStep { block, branches }, class }
    }

    /// The norm that this block begins with.
    pub fn first_norm(&self) -> NextNorm<'_> {
        self.step.first_norm()
    }

    pub fn rows(&self) -> impl Iterator<Item = &Rows> {
        let ClassRows { of_all, of_attention, branch } = &self.class;
        self.step.rows().chain([of_all, of_attention, &branch.rows])
    }

    /// The class tokens as a compact matrix with one row a segment.
    pub fn forward(self, p: &ParamSet, entry: Entry) -> (Tensor, ClassBlockSaved) {
        let (Self { step: BlockOfStep { block, branches }, class }, Entry { branch, norm }) = (self, entry);
        let class_normed = ops::gather(&norm.normed, &class.of_attention, 1.0);
        let q = ops::linear(&class_normed, &block.qkv.affine(p).part(0..block.dim));
        let kv = ops::linear(&norm.normed, &block.qkv.affine(p).part(block.dim..3 * block.dim));
        let attended = ops::class_attention(&q, &kv, &branch.rows, block.heads);
        let class_x = ops::gather(&norm.x, &class.of_all, 1.0);
        let (out, mlp) = block.read_rows(p, &class_x, (&class.branch, &attended.out), branches.mlp);
        let attention = ClassAttentionSaved { branch, norm, class, class_normed, q, kv, attended };
        (out, ClassBlockSaved { attention, mlp })
    }
}

/// The last block of a network of which some tokens are read: what follows its attention is for those alone.
#[derive(Debug)]
pub(crate) struct LastOfRead<'a> {
    step: BlockOfStep<'a>,
    read: ReadRows,
}

/// The tokens of a batch that are read.
#[derive(Debug)]
struct ReadRows {
    /// Among all tokens.
    of_all: Rows,
    /// Those whose attention is taken, among the tokens that it reads.
    of_attention: Rows,
    /// The same among the tokens that are read.
    branch: ResidualBranch,
}

impl<'a> LastOfRead<'a> {
    /// `read` is of the segments of `rows`.
    pub fn new(block: &'a Block, choice: Option<&BlockChoice>, rows: &Rows, read: &Kept) -> Self {
        let branches = Branches { attention: attention_branch(choice, rows), mlp: mlp_branch(choice, &read.segments) };
        let read = ReadRows {
            of_all: read.tokens.clone(),
            of_attention: read.among_taken(rows, choice.map(|c| &c.attention[..])),
            branch: attention_branch(choice, &read.segments),
        };
        Self { step: BlockOfStep { block, branches }, read }
    }

    /// The norm that this block begins with.
    pub fn first_norm(&self) -> NextNorm<'_> {
        self.step.first_norm()
    }

    pub fn rows(&self) -> impl Iterator<Item = &Rows> {
        let ReadRows { of_all, of_attention, branch } = &self.read;
        self.step.rows().chain([of_all, of_attention, &branch.rows])
    }

    /// The tokens that are read, as a compact matrix.
    pub fn forward(self, p: &ParamSet, entry: Entry) -> (Tensor, ReadBlockSaved) {
        let (Self { step: BlockOfStep { block, branches }, read }, Entry { branch, norm }) = (self, entry);
        let qkv = ops::linear(&norm.normed, &block.qkv.affine(p));
        let attended = ops::attention(&qkv, &branch.rows, block.heads);
        let out = ops::gather(&attended.out, &read.of_attention, 1.0);
        let x = ops::gather(&norm.x, &read.of_all, 1.0);
        let attention = AttentionSaved { branch, norm, qkv, attended };
        let (x, mlp) = block.read_rows(p, &x, (&read.branch, &out), branches.mlp);
        (x, ReadBlockSaved { attention, read, out, mlp })
    }
}

fn attention_branch(choice: Option<&BlockChoice>, rows: &Rows) -> ResidualBranch {
    ResidualBranch::new(rows, choice.map(|c| (&c.attention[..], c.scale)))
}

fn mlp_branch(choice: Option<&BlockChoice>, rows: &Rows) -> ResidualBranch {
    ResidualBranch::new(rows, choice.map(|c| (&c.mlp[..], c.scale)))
}

/// What the derivative of the MLP half needs.
#[derive(Debug)]
struct MlpSaved {
    branch: ResidualBranch,
    norm: NormSaved,
    hidden: GeluSaved,
}

/// What the derivative of the attention half needs; of the weights of attention only their log-sums.
#[derive(Debug)]
struct AttentionSaved {
    branch: ResidualBranch,
    norm: NormSaved,
    qkv: Tensor,
    attended: Attended,
}

/// The same for class tokens: their queries apart from the keys and values of all tokens.
#[derive(Debug)]
struct ClassAttentionSaved {
    branch: ResidualBranch,
    norm: NormSaved,
    class: ClassRows,
    class_normed: Tensor,
    q: Tensor,
    kv: Tensor,
    attended: Attended,
}

/// What the derivative of a block needs.
#[derive(Debug)]
pub(crate) struct BlockSaved {
    attention: AttentionSaved,
    mlp: MlpSaved,
}

impl BlockSaved {
    /// The block's input alone, and what recomputing the rest needs beside it.
    pub fn into_input(self) -> (Tensor, Branches) {
        let branches = Branches { attention: self.attention.branch, mlp: self.mlp.branch };
        (self.attention.norm.x, branches)
    }
}

/// What the derivative of a last block for class tokens needs.
#[derive(Debug)]
pub(crate) struct ClassBlockSaved {
    attention: ClassAttentionSaved,
    mlp: MlpSaved,
}

/// What the derivative of a last block needs of which some tokens are read.
#[derive(Debug)]
pub(crate) struct ReadBlockSaved {
    attention: AttentionSaved,
    read: ReadRows,
    /// What attention gives the tokens that are read.
    out: Tensor,
    mlp: MlpSaved,
}

impl Block {
    pub fn new(layout: &mut Layout, name: &str, config: &VitConfig) -> Self {
        let VitConfig { dim, heads, mlp_dim, extras, .. } = *config;
        let [scale1, scale2] = ["ls1", "ls2"].map(|scale| extras.layer_scale.then(|| format!("{name}.{scale}.gamma")));
        Self {
            norm1: LayerNorm::new(layout, &format!("{name}.norm1"), dim, extras.norm_epsilon),
            qkv: Linear::new(layout, &format!("{name}.attn.qkv"), dim, 3 * dim),
            proj: BranchEnd::new(layout, &format!("{name}.attn.proj"), scale1.as_deref(), dim, dim),
            norm2: LayerNorm::new(layout, &format!("{name}.norm2"), dim, extras.norm_epsilon),
            fc1: Linear::new(layout, &format!("{name}.mlp.fc1"), dim, mlp_dim),
            fc2: BranchEnd::new(layout, &format!("{name}.mlp.fc2"), scale2.as_deref(), mlp_dim, dim),
            heads,
            dim,
        }
    }

    /// All that follows the attention of a last block, for the rows of the stream that are read of it.
    fn read_rows(
        &self,
        p: &ParamSet,
        x: &Tensor,
        (attention, attended): (&ResidualBranch, &Tensor),
        branch: ResidualBranch,
    ) -> (Tensor, MlpSaved) {
        let norm = self.norm2.after_branch(p, x, attention, (&self.proj, attended), &branch.rows);
        let (activated, mut hidden) = ops::linear_gelu(&norm.normed, &self.fc1.affine(p));
        let end = self.fc2.effective(p);
        let x = ops::linear_residual(&norm.x, &branch.rows, branch.scale, &activated, &end.affine());
        hidden.keep(activated);
        (x, MlpSaved { branch, norm, hidden })
    }

    /// The weights of its attention: of queries, keys and values, and of the output projection.
    pub fn attention_weights(&self) -> (ParamId, ParamId) {
        (self.qkv.weight, self.proj.linear.weight)
    }

    /// All tokens, keeping nothing.
    pub fn infer(&self, p: &ParamSet, x: &Tensor, rows: &Rows) -> Tensor {
        let (normed, _) = self.norm1.forward(p, x, rows);
        let attended = ops::attention(&ops::linear(&normed, &self.qkv.affine(p)), rows, self.heads);
        let x = ops::linear_residual(x, rows, 1.0, &attended.out, &self.proj.effective(p).affine());
        let (normed, _) = self.norm2.forward(p, &x, rows);
        let activated = ops::linear_gelu_only(&normed, &self.fc1.affine(p));
        ops::linear_residual(&x, rows, 1.0, &activated, &self.fc2.effective(p).affine())
    }

    /// The queries of the class tokens and the keys of all tokens, of which their attention is made.
    pub fn class_queries_and_keys(&self, p: &ParamSet, x: &Tensor, rows: &Rows) -> (Tensor, Tensor) {
        let (normed, _) = self.norm1.forward(p, x, rows);
        let class = ops::gather(&normed, &rows.first_of_each(), 1.0);
        let affine = || self.qkv.affine(p);
        let queries = ops::linear(&class, &affine().part(0..self.dim));
        (queries, ops::linear(&normed, &affine().part(self.dim..2 * self.dim)))
    }

    /// From the gradient of the block's output to that of its input.
    pub fn backward(&self, p: &ParamSet, saved: BlockSaved, dx: Tensor, grads: &mut ParamSet) -> Tensor {
        let mut dx = self.mlp_backward(p, saved.mlp, dx, grads);
        let AttentionSaved { branch, norm, qkv, attended } = saved.attention;
        let d_branch = ops::branch_gradient(&dx, &branch.rows, branch.scale);
        self.proj.backward_weight(p, &attended.out, &d_branch, grads);
        let d_out = self.proj.backward_input(&d_branch, p);
        drop(d_branch);
        let d_qkv = ops::attention_backward(&qkv, &branch.rows, self.heads, &attended, &d_out);
        drop((qkv, attended, d_out));
        self.norm1.backward_with_reader(&self.qkv, p, &norm, &branch.rows, &d_qkv, &mut dx, grads);
        dx
    }

    /// From the gradient of the class tokens to that of all tokens of the block's input.
    pub fn backward_class(
        &self,
        p: &ParamSet,
        saved: ClassBlockSaved,
        d_class: Tensor,
        grads: &mut ParamSet,
    ) -> Tensor {
        let d_class = self.mlp_backward(p, saved.mlp, d_class, grads);
        let s = saved.attention;
        let d_branch = ops::branch_gradient(&d_class, &s.class.branch.rows, s.class.branch.scale);
        self.proj.backward_weight(p, &s.attended.out, &d_branch, grads);
        let d_out = self.proj.backward_input(&d_branch, p);
        let (dq, dkv) = ops::class_attention_backward(&s.q, &s.kv, &s.branch.rows, self.heads, &s.attended, &d_out);
        let (queries, keys_values) = (0..self.dim, self.dim..3 * self.dim);
        self.qkv.backward_weight_part(&s.class_normed, &dq, queries.clone(), grads);
        let mut d_normed = ops::linear_backward_input(&dkv, &self.qkv.affine(p).part(keys_values.clone()));
        let d_class_normed = ops::linear_backward_input(&dq, &self.qkv.affine(p).part(queries));
        ops::scatter_add(&d_class_normed, &s.class.of_attention, 1.0, &mut d_normed);

        let NormSaved { x, normed, statistics } = &s.norm;
        self.qkv.backward_weight_part(normed, &dkv, keys_values, grads);
        let mut dx = x.zeros_like();
        ops::scatter_add(&d_class, &s.class.of_all, 1.0, &mut dx);
        self.norm1.backward(p, x, &s.branch.rows, statistics, &d_normed, &mut dx, grads);
        dx
    }

    /// From the gradient of the tokens that are read to that of all tokens of the block's input.
    pub fn backward_read(&self, p: &ParamSet, saved: ReadBlockSaved, d_read: Tensor, grads: &mut ParamSet) -> Tensor {
        let ReadBlockSaved { attention, read, out, mlp } = saved;
        let d_read = self.mlp_backward(p, mlp, d_read, grads);
        let d_branch = ops::branch_gradient(&d_read, &read.branch.rows, read.branch.scale);
        self.proj.backward_weight(p, &out, &d_branch, grads);
        // What nobody reads has no gradient of its own, but keys and values that others look at.
        let d_out = ops::scatter(&self.proj.backward_input(&d_branch, p), &read.of_attention);
        drop((out, d_branch));
        let mut dx = ops::scatter(&d_read, &read.of_all);
        let AttentionSaved { branch, norm, qkv, attended } = attention;
        let d_qkv = ops::attention_backward(&qkv, &branch.rows, self.heads, &attended, &d_out);
        drop((qkv, attended, d_out));
        self.norm1.backward_with_reader(&self.qkv, p, &norm, &branch.rows, &d_qkv, &mut dx, grads);
        dx
    }

    fn mlp_backward(&self, p: &ParamSet, saved: MlpSaved, mut dx: Tensor, grads: &mut ParamSet) -> Tensor {
        let MlpSaved { branch, norm, hidden } = saved;
        let d_branch = ops::branch_gradient(&dx, &branch.rows, branch.scale);
        let d_pre = self.fc2.backward_through_gelu(&d_branch, p, hidden, grads);
        drop(d_branch);
        self.norm2.backward_with_reader(&self.fc1, p, &norm, &branch.rows, &d_pre, &mut dx, grads);
        dx
    }
}
