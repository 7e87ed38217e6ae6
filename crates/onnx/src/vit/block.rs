//! A block of the transformer: attention and MLP, each behind a LayerNorm and added to what went in.

use crate::graph::Attribute;

use super::build::Builder;
use super::{BuildError, VitGraph};

impl VitGraph {
    /// Block `i`, from tokens [batch, tokens, dim] to tokens.
    pub(super) fn block(&self, builder: &mut Builder<'_>, i: usize, x: String) -> Result<String, BuildError> {
        let block = format!("blocks.{i}");
        let normal = builder.layer_norm(&format!("{block}.norm1"), x.clone(), self.dim, self.epsilon)?;
        let branch = self.attention(builder, &format!("{block}.attn"), &normal)?;
        let branch = self.scaled(builder, &format!("{block}.ls1"), branch)?;
        let x = builder.node("Add", &format!("{block}.attended"), &[&x, &branch], []);

        let normal = builder.layer_norm(&format!("{block}.norm2"), x.clone(), self.dim, self.epsilon)?;
        let hidden = builder.linear(&format!("{block}.mlp.fc1"), &normal, self.dim, self.mlp_dim)?;
        let hidden = builder.gelu(&format!("{block}.mlp.gelu"), &hidden);
        let branch = builder.linear(&format!("{block}.mlp.fc2"), &hidden, self.mlp_dim, self.dim)?;
        let branch = self.scaled(builder, &format!("{block}.ls2"), branch)?;
        Ok(builder.node("Add", &block, &[&x, &branch], []))
    }

    /// `softmax(q k^T / sqrt(d)) v` for every head, and the projection of all heads together.
    fn attention(&self, builder: &mut Builder<'_>, name: &str, x: &str) -> Result<String, BuildError> {
        let (dim, width) = (self.dim as i64, (self.dim / self.heads) as i64);
        let tokens = (1 + self.registers + self.patches()) as i64;
        let qkv = builder.linear(&format!("{name}.qkv"), x, self.dim, 3 * self.dim)?;
        let thirds = builder.ints("attention.thirds", &[dim; 3]);
        let flat = ["q_flat", "k_flat", "v_flat"].map(|part| format!("{name}.{part}"));
        builder.nodes("Split", &flat.each_ref().map(String::as_str), &[&qkv, &thirds], [("axis", Attribute::Int(2))]);
        // [batch, tokens, dim] to [batch, heads, tokens, width]; keys are transposed for the product at once.
        let by_head = builder.ints("attention.by_head", &[0, tokens, self.heads as i64, width]);
        let mut head = |flat: &str, part: &str, order: &[i64]| {
            let split = builder.node("Reshape", &format!("{name}.{part}_split"), &[flat, &by_head], []);
            builder.transpose(&format!("{name}.{part}"), &split, order)
        };
        let [q, k, v] = [("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])];
        let q = head(&flat[0], q.0, &q.1);
        let k = head(&flat[1], k.0, &k.1);
        let v = head(&flat[2], v.0, &v.1);
        let scale = builder.number("attention.scale", (width as f64).sqrt().recip() as f32);
        let products = builder.node("MatMul", &format!("{name}.products"), &[&q, &k], []);
        let scores = builder.node("Mul", &format!("{name}.scores"), &[&products, &scale], []);
        let weights = builder.node("Softmax", &format!("{name}.weights"), &[&scores], [("axis", Attribute::Int(-1))]);
        let mixed = builder.node("MatMul", &format!("{name}.mixed"), &[&weights, &v], []);
        let merged = builder.transpose(&format!("{name}.merged"), &mixed, &[0, 2, 1, 3]);
        let flat = builder.ints("attention.flat", &[0, tokens, dim]);
        let merged = builder.node("Reshape", &format!("{name}.flat"), &[&merged, &flat], []);
        builder.linear(&format!("{name}.proj"), &merged, self.dim, self.dim)
    }

    /// A branch times its learnt scale, where the network has such scales.
    fn scaled(&self, builder: &mut Builder<'_>, name: &str, branch: String) -> Result<String, BuildError> {
        if !self.layer_scale {
            return Ok(branch);
        }
        let gamma = builder.weight(&format!("{name}.gamma"), &[self.dim])?;
        Ok(builder.node("Mul", name, &[&branch, &gamma], []))
    }
}
