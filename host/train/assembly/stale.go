package assembly

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/sdk/program"
)

// Hashes returns the SHA-256 of every program, by role and name. A run depends on these,
// and not on the executables that returned the programs: it can be continued with a
// plugin that was built anew, as long as that returns the same programs.
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
	for name, q := range p.Activations {
		add("activation "+name, q.Programs())
	}
	for _, t := range p.Tensors {
		add("optimizer of "+t.Name, t.Optimizer.Programs())
	}
	return hashes
}

// Changed returns, in order, the names of recorded programs that are different now. Names
// that are missing on one side are ignored, because an evaluation needs fewer programs.
func Changed(recorded, now map[string]string) []string {
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		if hash, ok := now[name]; ok && hash != recorded[name] {
			changed = append(changed, name)
		}
	}
	return changed
}

// trainingInputs are what a run would be trained with now, beside its configuration.
type trainingInputs struct {
	programs map[string]string
	data     config.Data
}

// stale says in what the run in the configuration's directory differs; empty when it does
// not, or when its files cannot be read: those who read the run report a damaged file.
func (in trainingInputs) stale(cfg *config.Config) string {
	if changed := Changed(recordedPrograms(cfg.Train.Out), in.programs); len(changed) > 0 {
		return fmt.Sprintf("a plugin has changed and now gives another program for %s (%d programs in all)", changed[0], len(changed))
	}
	before, err := config.Load(rundir.At(cfg.Train.Out).Config().Name, nil)
	if err != nil {
		return ""
	}
	return config.ChangedData(before.Data.Hashes(), in.data.Hashes())
}

// recordedPrograms returns the hashes of the programs that a run was trained with; nil if its
// directory does not record them.
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
