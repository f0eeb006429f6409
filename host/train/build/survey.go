package build

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Survey checks whether configurations can be trained with their data, model and plugins; for
// example, whether a plugin accepts a shape. If so, it compares the programs and data with those of
// the run in train.out, if there is one. It starts each plugin once for all configurations.
func Survey(
	ctx context.Context, list []*config.Config, finder *plugin.Finder, options plugin.Options,
) []config.Finding {
	running := newPool(finder, options)
	defer running.close()
	out := make([]config.Finding, len(list))
	checked := map[string]config.Finding{}
	for i, cfg := range list {
		if out[i].Err = ctx.Err(); out[i].Err != nil {
			continue
		}
		// Most cells of a study differ only in settings that are not checked here. Errors are not
		// shared, because they contain the line in the configuration.
		key, unknown := surveyKey(cfg)
		found, ok := checked[key]
		if unknown != nil || !ok {
			if found, out[i].Err = check(ctx, cfg, running); out[i].Err != nil {
				continue
			}
			if unknown == nil {
				checked[key] = found
			}
		}
		out[i] = found
		// Compare with the run in train.out, if there is one. Damaged files are only reported when
		// the run is read later.
		run := rundir.At(cfg.Train.Out)
		if changed := Changed(recordedPrograms(cfg.Train.Out), found.Programs); len(changed) > 0 {
			out[i].Stale = fmt.Sprintf("a plugin has changed and now gives another program for %s "+
				"(%d programs in all)", changed[0], len(changed))
		} else if before, err := config.Load(run.Config().Name, nil); err == nil {
			out[i].Stale = config.ChangedData(before.Data.Hashes(), found.Data)
		}
	}
	return out
}

// surveyKey returns a key that is equal for two configurations only if checking their data, model
// and plugins gives the same result.
func surveyKey(cfg *config.Config) (string, error) {
	c := *cfg
	c.Seed = 0
	t := c.Train
	c.Train = config.Train{Batch: t.Batch, Clip: t.Clip, Average: t.Average,
		Distillation: t.Distillation}
	if c.Data.Kind == config.KindChat { // packing of conversations determines the number of steps
		c.Train.Accumulate, c.Train.Steps = t.Accumulate, t.Steps
	} else {
		c.Data.Seed, c.Schedule = 0, cage.ScheduleSettings{}
	}
	c.Diagnostics, c.Device = cage.Diagnostics{}, config.Device{Count: c.Device.Count}
	m := &c.Method.CAGE
	m.Lambda, m.Silence = 0, 0
	if m.Strength != nil {
		m.Strength = new(float64)
	}
	text, err := json.Marshal(&c)
	return string(text), err
}

// check returns the hashes of a configuration's programs and data, or an error if it cannot be
// trained.
func check(ctx context.Context, cfg *config.Config, running *pool) (f config.Finding, err error) {
	if cfg.Model.Language() {
		if cfg, err = PinnedToData(cfg); err != nil {
			return f, err
		}
	}
	m, err := Model(cfg)
	if err != nil {
		return f, err
	}
	request := Request{Config: cfg, Model: m, Batch: ReplicaBatch(cfg)}
	programs, err := newCollector(request, running).collect(ctx)
	if err != nil {
		return f, err
	}
	if _, err := Plan(cfg, m, programs); err != nil {
		return f, err
	}
	return config.Finding{Programs: programs.Hashes(), Data: cfg.Data.Hashes()}, nil
}

// Hashes returns the SHA-256 of every program, by role and name. A run can be resumed with a
// different build of a plugin that returns the same programs.
func (p *Programs) Hashes() map[string]string {
	hashes := map[string]string{}
	add := func(owner string, programs iter.Seq2[string, *program.Program]) {
		for which, q := range programs {
			hashes[owner+": "+which] = q.Hash()
		}
	}
	for name, q := range p.Weights {
		add("weight "+name, q.Programs())
	}
	for name, hash := range p.executables {
		hashes["weight "+name+": executable"] = hash
	}
	for name, q := range p.Activations {
		add("activation "+name, q.Programs())
	}
	for site, q := range p.Backward {
		add(site.String(), q.Programs())
	}
	for _, t := range p.Tensors {
		add("optimizer of "+t.Name, t.Optimizer.Programs())
		if t.Executable != "" {
			hashes["optimizer of "+t.Name+": executable"] = t.Executable
		}
	}
	return hashes
}

// Changed returns the sorted names of programs whose recorded and current hashes differ. Names that
// only one of the maps contains are ignored, because an evaluation needs fewer programs.
func Changed(recorded, now map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(recorded)), func(name string) bool {
		hash, ok := now[name]
		return !ok || hash == recorded[name]
	})
}

// Differing returns the sorted names of programs whose recorded and current hashes differ, or that
// only one of the maps contains.
func Differing(recorded, now map[string]string) []string {
	all := map[string]string{}
	maps.Copy(all, recorded)
	maps.Copy(all, now)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool {
		return recorded[name] == now[name] // no hash is ""
	})
}

// Declared returns a SHA-256 of what the plugins' answers declare beside programs, and of which
// tensors they are for.
func (p *Programs) Declared() string {
	h := sha256.New()
	tensors := func(list []spec.Tensor) {
		for _, t := range list {
			t.Constrain = nil // a program
			fmt.Fprintf(h, "%+v;", t)
		}
	}
	for _, sites := range []map[string]spec.Quantizer{p.Weights, p.Activations} {
		for _, name := range slices.Sorted(maps.Keys(sites)) {
			q := sites[name]
			fmt.Fprintf(h, "\n%s %t %d %+v ", name, q.Homogeneous, q.SearchEvery, q.Grid)
			tensors(q.Trained)
			tensors(q.State)
		}
	}
	for _, t := range p.Tensors {
		o := t.Optimizer
		fmt.Fprintf(h, "\n%s %t %+v %+v %t %s ", t.Name, o.Opaque, o.Due, o.ProbeDue, o.Sampled,
			o.Rounded)
		tensors(o.State)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// recordedPrograms returns the hashes of the programs that the run in dir was trained with, or nil
// if they are not recorded.
func recordedPrograms(dir string) map[string]string {
	var p struct {
		Programs map[string]string `json:"programs"`
	}
	text, err := rundir.At(dir).Provenance().ReadFile()
	if err != nil || json.Unmarshal(text, &p) != nil {
		return nil
	}
	return p.Programs
}
