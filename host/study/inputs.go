package study

import (
	"cmp"
	"fmt"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// record is the part of a run's provenance that identifies its inputs.
type record struct {
	Run         string `json:"run"`
	Initial     origin `json:"initial"`
	Teacher     origin `json:"teacher"`
	Posttrained struct {
		Calibration struct {
			SHA256 string `json:"sha256"`
		} `json:"calibration"`
	} `json:"posttrained"`
}

// origin identifies the weights that a run has read.
type origin struct {
	Run   string             `json:"run"` // "" for a Hugging Face checkpoint
	Step  int                `json:"step"`
	Files []huggingface.Part `json:"files"`
}

// readRecord returns the zero record if it cannot be read.
func readRecord(dir rundir.Dir) (r record) {
	if plainjson.ReadFile(dir.Provenance(), &r) != nil {
		return record{}
	}
	return r
}

// inputs compares the models and calibration texts outside the study that cells were made from with
// the present ones. What cannot be read counts as unchanged.
type inputs struct {
	study  *Study
	runs   map[string]origin // newest weights of runs, by directory
	hashes map[string]string // of files of checkpoints
}

// findReplaced sets the state of results whose inputs have been replaced to [Stale].
func (s *Study) findReplaced(results []Result) {
	in := inputs{s, map[string]origin{}, map[string]string{}}
	for i, r := range results {
		if r.State == Missing || r.State == Running || r.State == Stale {
			continue
		}
		if why := in.replaced(r.Cell); why != "" {
			results[i] = Result{Cell: r.Cell, State: Stale, Err: why}
		}
	}
}

// replaced describes a change of the inputs of a cell; it is empty if there is none.
func (in *inputs) replaced(c Cell) string {
	initial, teacher, texts := c.Config.Init, c.Config.Train.Distillation.Teacher, ""
	if c.made != nil { // the model of a cell, which markRemade compares
		initial = ""
	}
	if teacher == config.TeacherInitial {
		teacher = ""
	}
	if c.Quantize != nil {
		texts = c.Quantize.Data
	}
	if initial == "" && teacher == "" && texts == "" {
		return ""
	}
	made := readRecord(in.study.run(c))
	if was := made.Posttrained.Calibration.SHA256; texts != "" && was != "" {
		if f, err := dataset.Open(texts); err == nil {
			now := f.SHA256()
			_ = f.Close()
			if why := config.ChangedData(map[string]string{texts: was},
				map[string]string{texts: now}); why != "" {
				return why
			}
		}
	}
	return cmp.Or(in.changed(initial, made.Initial), in.changed(teacher, made.Teacher))
}

// changed describes how the model in dir differs from the one that was read.
func (in *inputs) changed(dir string, was origin) string {
	if dir == "" {
		return ""
	}
	if was.Run == "" {
		for _, part := range was.Files {
			if in.differs(vfs.At(dir).Join(part.File), part.SHA256) {
				return fmt.Sprintf("the model in %s has changed: %s has another SHA-256", dir, part.File)
			}
		}
		return ""
	}
	now, ok := in.runs[dir]
	if !ok {
		now.Run = readRecord(rundir.At(dir)).Run
		if list, err := checkpoint.List(rundir.At(dir).Checkpoints()); err == nil && len(list) > 0 {
			now.Step = list[len(list)-1].Step
		}
		in.runs[dir] = now
	}
	switch {
	case now.Run != "" && now.Run != was.Run:
		return fmt.Sprintf("the run in %s was replaced by another", dir)
	case now.Run != "" && now.Step > 0 && now.Step != was.Step:
		return fmt.Sprintf("the run in %s has gone on: it is at step %d, was at %d",
			dir, now.Step, was.Step)
	}
	return ""
}

// differs reports whether the content of a file has another hash. Times do not tell: a file that
// was moved or copied to its place may be older than the one that it replaces.
func (in *inputs) differs(path vfs.Path, hash string) bool {
	now, ok := in.hashes[path.Name]
	if !ok {
		if sum, err := fileHash(path); err == nil {
			now = sum
		}
		in.hashes[path.Name] = now
	}
	return now != "" && now != hash
}
