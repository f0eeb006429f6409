package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"

	"github.com/cage-qat/cage/host/assembly"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/sdk/program"
)

// provenance is what run.toml does not say about how a run came to be.
type provenance struct {
	Build   engine.BuildInfo `json:"build"`
	Plugins []assembly.Used  `json:"plugins"`
	// Programs holds the SHA-256 of each program by role and name. They, and not
	// the executables they came from, are what a run depends on: a plugin that
	// was built anew and writes the same programs continues it.
	Programs map[string]string `json:"programs"`
}

// programHashes names the programs of a run and hashes them.
func programHashes(p *assembly.Programs) map[string]string {
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

// describe writes run.toml and provenance.json.
func (r *run) describe() error {
	text, err := r.cfg.Encode()
	if err != nil {
		return err
	}
	p := provenance{Build: r.device.BuildInfo(), Plugins: r.programs.Used, Programs: programHashes(r.programs)}
	about, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		atomicfile.WriteBytes(rundir.Config(r.cfg.Train.Out), text),
		atomicfile.WriteBytes(rundir.Provenance(r.cfg.Train.Out), append(about, '\n')),
	)
}

// changedPrograms compares programs with those recorded at path and returns, in
// order, the names of those recorded ones that are different now. Names that only
// one side has are not compared: an evaluation needs fewer programs.
func changedPrograms(path string, now map[string]string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var p provenance
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(p.Programs)) {
		if hash, ok := now[name]; ok && hash != p.Programs[name] {
			changed = append(changed, name)
		}
	}
	return changed, nil
}
