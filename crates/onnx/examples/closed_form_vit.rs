//! Writes a vision transformer whose weights are closed forms, for `tools/oracle/onnx_check.py` and `onnx_vit.py`; then
//! reads it back and runs it.
//!
//!     cargo run --release -p onnx --example closed_form_vit -- tiny|seed|192|384|768 PATH

#[path = "../tests/common/mod.rs"]
mod common;

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::time::Instant;

use common::{ClosedForm, INPUT_STREAM, model, pixels, seed, tiny, vit16};
use onnx::Writer;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [which, path] = &arguments[..] else {
        return Err("usage: closed_form_vit tiny|seed|192|384|768 PATH".into());
    };
    let (vit, tensors, head) = match which.as_str() {
        "tiny" | "seed" => {
            let (vit, tensors, head) = if which == "tiny" { tiny() } else { seed() };
            (vit, tensors, Some(head))
        }
        dim => {
            let vit = vit16(dim.parse()?);
            let tensors = ClosedForm::of(&vit, &[]);
            (vit, tensors, None)
        }
    };
    let start = Instant::now();
    let model = model(&vit, &tensors, head.as_ref());
    let mut file = BufWriter::new(File::create(path)?);
    Writer::new(&model)?.write_to(&mut file)?;
    file.flush()?;
    println!("wrote {path}: {:.1} s", start.elapsed().as_secs_f64());

    let start = Instant::now();
    let bytes = fs::read(path)?;
    let outputs = onnx::run(&onnx::read(&bytes)?, pixels(&vit, 1, INPUT_STREAM))?;
    println!("read and run on one image: {:.1} s", start.elapsed().as_secs_f64());
    for (name, value) in outputs {
        let values = value.as_f32().unwrap_or_default();
        println!("{name} {:?}: {:?} ...", value.shape(), &values[..values.len().min(4)]);
    }
    Ok(())
}
