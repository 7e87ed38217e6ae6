//! What a recipe says that is allowed, and probably not meant.

use super::fields::{KEYS, Recipe};
use crate::health::{Course, FEW_IMAGES, USUAL_LR};

impl Recipe {
    /// Whether a key applies to the recipe's method.
    fn applies(&self, key: &str) -> bool {
        KEYS.iter().any(|known| known.name == key && known.scope.includes(self.method()))
    }

    /// What is allowed but probably not meant, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut said = Vec::new();
        let patch = self.patch_size();
        for (key, size) in [("global_size", self.global_size()), ("local_size", self.local_size())] {
            let (rows, columns) = (size.height % patch, size.width % patch);
            if rows + columns > 0 && (key == "global_size" || self.local_crops() > 0) {
                said.push(format!(
                    "{key} {size} is no multiple of patch_size {patch}: its last {rows} rows and {columns} columns \
                     are never seen"
                ));
            }
        }
        let (global, local) = (self.global_size(), self.local_size());
        if self.local_crops() > 0 && (local.height > global.height || local.width > global.width) {
            said.push(format!(
                "local_size {local} is larger than global_size {global}: local views, which show a small part of an image, \
                 then cost more than those that show most of it"
            ));
        }
        if self.facts.images < FEW_IMAGES {
            let (images, is) =
                (text::count(self.facts.images, "image"), if self.facts.images == 1 { "is" } else { "are" });
            said.push(format!(
                "{images} {is} hardly anything to learn from: whatever the numbers say, features of so few rarely serve others"
            ));
        }
        if self.out_dim() > self.facts.images {
            said.push(format!(
                "out_dim {} is more prototypes than images ({}): most will stay unused",
                self.out_dim(),
                self.facts.images
            ));
        }
        if self.applies("teacher_temp") && self.teacher_temp() >= self.student_temp() {
            said.push(format!(
                "teacher_temp {} is not below student_temp {}: the teacher does not sharpen, and the run may collapse \
                 to the uniform distribution",
                self.teacher_temp(),
                self.student_temp()
            ));
        }
        if self.applies("teacher_patch_temp") && self.teacher_patch_temp() >= self.student_temp() {
            said.push(format!(
                "teacher_patch_temp {} is not below student_temp {}: the teacher does not sharpen patches",
                self.teacher_patch_temp(),
                self.student_temp()
            ));
        }
        if self.applies("mask_start_epoch") && self.mask_start_epoch() >= self.epochs() {
            said.push(format!("mask_start_epoch {}: no patch is ever masked", self.mask_start_epoch()));
        } else if self.applies("mask_ratio") && self.masked_views() == 1.0 && self.mask_ratio().low == 1.0 {
            said.push(
                "masked_views 1 and mask_ratio from 1 on mask every patch of every global view: the student sees nothing of them"
                    .to_owned(),
            );
        }
        if self.applies("me_max_weight") && self.me_max_weight() == 0.0 && !self.sinkhorn() {
            said.push(
                "me_max_weight 0 without sinkhorn: nothing keeps all images from choosing the same prototype, and the run may \
                 collapse to it"
                    .to_owned(),
            );
        }
        if self.applies("warmup_teacher_temp_epochs") && self.warmup_teacher_temp_epochs() > self.epochs() {
            said.push(format!(
                "warmup_teacher_temp_epochs {} is longer than the run ({} epochs): teacher_temp {} is never reached",
                self.warmup_teacher_temp_epochs(),
                self.epochs(),
                self.teacher_temp()
            ));
        }
        if self.applies("freeze_last_layer") && self.freeze_last_layer() >= self.epochs() {
            said.push(format!(
                "freeze_last_layer {} covers all {} epochs: the prototypes never move",
                self.freeze_last_layer(),
                self.epochs()
            ));
        }
        if self.momentum_teacher() == 1.0 {
            said.push(
                "momentum_teacher 1 keeps the teacher, which is the network that is saved, at its random start"
                    .to_owned(),
            );
        }
        if Course::of(self).has_high_lr() {
            said.push(format!(
                "lr {} is {:.0} times DINO's {USUAL_LR}: training at such a rate usually collapses",
                self.lr(),
                self.lr() / USUAL_LR
            ));
        }
        if self.knn_every() > 0 && !self.facts.labelled {
            said.push("knn_every is set, but the images have no labels: there will be no online kNN".to_owned());
        }
        if self.keep_checkpoints() == 1 {
            said.push("keep_checkpoints 1 leaves nothing to fall back to should the only one be damaged".to_owned());
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Facts, RawRecipe};

    #[test]
    fn what_is_probably_not_meant_is_told() {
        let warnings = |images: usize, text: &str| {
            let facts = Facts { images, height: 64, width: 64, labelled: false, fingerprint: 7 };
            let recipe = RawRecipe::from_toml(&format!("out_dim = {}\n{text}", images.clamp(2, 8)), "test")
                .unwrap()
                .resolve(&facts)
                .unwrap();
            recipe.warnings().join("\n")
        };
        assert_eq!(warnings(300, "global_size = 48\nlocal_size = 24"), "");
        let large = warnings(300, "global_size = 48\nlocal_size = \"24x96\"");
        assert!(large.starts_with("local_size 24x96 is larger than global_size 48x48"), "{large}");
        let unused = warnings(300, "global_size = 48\nlocal_size = 96\nlocal_crops = 0");
        assert_eq!(unused, "", "there are no local views");
        assert!(warnings(1, "").starts_with("1 image is hardly anything"), "{}", warnings(1, ""));
        let method = |text: &str| warnings(300, &format!("global_size = 48\nlocal_size = 24\n{text}"));
        let blind = method("method = \"ibot\"\nmasked_views = 1\nmask_ratio = [1.0, 1.0]");
        assert!(blind.contains("the student sees nothing of them"), "{blind}");
        assert_eq!(method("method = \"ibot\"\nmasked_views = 0.9\nmask_ratio = [1.0, 1.0]"), "");
        let free = method("method = \"msn\"\nme_max_weight = 0\nsinkhorn = false");
        assert!(free.starts_with("me_max_weight 0 without sinkhorn"), "{free}");
        assert_eq!(method("method = \"msn\"\nsinkhorn = false"), "");
    }
}
