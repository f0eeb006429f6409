package config

import (
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/schema"
)

const (
	distillationTable = "train.distillation"
	teacherKey        = distillationTable + ".teacher"
)

func (d *Distillation) table() table {
	return table{name: distillationTable, models: architecture.Languages, sample: distillationSample, keys: d.keys(),
		doc: "The model learns what a teacher predicts, beside or in place of the tokens themselves. Its weights never change, no\n" +
			"checkpoint holds them, and it is computed without quantization, however it was trained. What is minimized is the\n" +
			"generalized Jensen-Shannon divergence of the two predictions, P the teacher's and Q the model's:\n" +
			"β·KL(P‖M) + (1−β)·KL(Q‖M) with M = βP + (1−β)Q. It counts for the same tokens as cross-entropy does, and is\n" +
			"normalized as that is. Validation losses are cross-entropies in any case.",
		absent: "there is no teacher"}
}

func (d *Distillation) keys() []schema.Key {
	return []schema.Key{
		{Name: "teacher", To: &d.Teacher, Is: schema.NonEmpty(`that is "initial" or names a directory`), Optional: "required in the table",
			Doc: "initial: the model as it starts, of `model.init`; or the directory of a Hugging Face checkpoint or of a run (its newest checkpoint is used), with the same vocabulary"},
		{Name: "beta", To: &d.Beta, Is: schema.Between(0, 1), Default: 0.5,
			Doc: "β; 0.5: the Jensen-Shannon divergence; 0: KL(P‖Q), 1: KL(Q‖P)"},
		{Name: "temperature", To: &d.Temperature, Is: schema.Above(0, 1000), Default: 1.0,
			Doc: "what the logits of both are divided by; the divergence is not multiplied with its square"},
		{Name: "weight", To: &d.Weight, Is: schema.Above(0, 1), Default: 1.0, Common: true,
			Doc: "share of the divergence in the loss; the rest is cross-entropy"},
	}
}

const distillationSample = `[train.distillation]         # 4 bits learn what full precision predicts
teacher = "models/Llama-3.2-3B-Instruct"
beta = 0.5
`

// distillation demands a teacher where anything is said of one.
func (d *decoder) distillation() {
	if !d.Good("train", distillationTable, teacherKey, "model", "model.kind") || !d.cfg.Model.Language() {
		return
	}
	if d.raw(distillationTable) == nil {
		return
	}
	t := d.cfg.Train.Distillation.table()
	if !d.Given(teacherKey) {
		d.reportMissing(t, *t.key("teacher"))
	} else if d.cfg.Train.Distillation.Teacher == TeacherInitial && d.cfg.Init == "" && d.Good(initKey) {
		d.Report(teacherKey, `found "initial" without model.init`, "want weights in model.init, which the model starts from, or the directory of a teacher")
	}
}
