#!/usr/bin/env python3
"""Linear classifiers trained by PyTorch's SGD -> crates/eval/tests/fixtures/linear.json

    python tools/oracle/linear_fixture.py

Needs: torch. One torch.nn.Linear a learning rate, torch.optim.SGD(momentum=0.9), CosineAnnealingLR stepped after each epoch,
CrossEntropyLoss, all in f64.

Everything is a closed form of vit_hash.uniform, features rounded to f32:
    training feature i        u(40, c W + j) + 1.8 u(41, i W + j), c = class of row i = (5 i + 2) mod C
    initial weight [c, j]     0.02 u(42, c W + j); biases zero
    order of epoch e          row (7 i + 3 e) mod N at place i
The last batch of an epoch is smaller than the others.

Format:
    rows, width, classes, batch_size, epochs, rates[] (as given: multiplied by batch_size / 256 for the optimiser)
    fits[]  for each rate: losses[] (mean cross-entropy of each epoch as rows were met), weight[], bias[] at the end
"""

import json
import pathlib

import torch

import vit_hash

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "eval" / "tests" / "fixtures" / "linear.json"
ROWS, WIDTH, CLASSES, BATCH, EPOCHS = 50, 6, 5, 16, 4
RATES = (0.2, 2.0, 10.0)


def main():
    torch.set_default_dtype(torch.float64)
    labels = torch.tensor([(5 * i + 2) % CLASSES for i in range(ROWS)])
    centres = torch.tensor(vit_hash.uniform(40, CLASSES * WIDTH)).reshape(CLASSES, WIDTH)
    noise = torch.tensor(vit_hash.uniform(41, ROWS * WIDTH)).reshape(ROWS, WIDTH)
    features = (centres[labels] + 1.8 * noise).float().double()
    initial = 0.02 * torch.tensor(vit_hash.uniform(42, CLASSES * WIDTH)).reshape(CLASSES, WIDTH)
    fits = []
    for rate in RATES:
        model = torch.nn.Linear(WIDTH, CLASSES)
        with torch.no_grad():
            model.weight.copy_(initial)
            model.bias.zero_()
        optimizer = torch.optim.SGD(model.parameters(), rate * BATCH / 256, momentum=0.9, weight_decay=0)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS, eta_min=0)
        losses = []
        for epoch in range(EPOCHS):
            order = [(7 * i + 3 * epoch) % ROWS for i in range(ROWS)]
            total = 0.0
            for start in range(0, ROWS, BATCH):
                rows = order[start : start + BATCH]
                loss = torch.nn.functional.cross_entropy(model(features[rows]), labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(rows)
            schedule.step()
            losses.append(total / ROWS)
        flat = lambda t: [float(f"{x:.12g}") for x in t.detach().flatten().tolist()]
        fits.append({"losses": losses, "weight": flat(model.weight), "bias": flat(model.bias)})
        print(rate, losses)
    head = {"rows": ROWS, "width": WIDTH, "classes": CLASSES, "batch_size": BATCH, "epochs": EPOCHS, "rates": RATES}
    OUT.write_text(json.dumps({**head, "fits": fits}, indent=1) + "\n")


if __name__ == "__main__":
    main()
