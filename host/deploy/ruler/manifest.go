package ruler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
)

// Manifest says what the prompts and answers of a directory were made with. To add to the
// directory, the same must be used.
type Manifest struct {
	Format int    `json:"format"`
	Seed   uint32 `json:"seed"`
	// Samples is the number of samples for each task and length.
	Samples int `json:"samples"`
	// Settings holds what the prompts depend on: tokenizer, template, inputs.
	Settings map[string]string `json:"settings"`
	// Model names the model that gave the answers; nil as long as there are none.
	Model *ModelName `json:"model,omitempty"`
	// Substitutions lists what differs from RULER's own inputs.
	Substitutions []string `json:"substitutions,omitempty"`
	// LeftOut maps tasks that have no prompts to the input that they lack.
	LeftOut map[string]string `json:"left_out,omitempty"`
}

// ModelName names a model.
type ModelName struct {
	// Name is for people to read.
	Name string `json:"name"`
	// Identity, if not empty, identifies the model, wherever it is stored.
	Identity string `json:"identity,omitempty"`
	// Batch is the number of prompts it answers at once, on which the answers depend slightly; 0: not known.
	Batch int `json:"batch,omitempty"`
}

// is tells whether two names are of one model, as far as they say.
func (n ModelName) is(other ModelName) bool {
	if n.Identity != "" && other.Identity != "" {
		return n.Identity == other.Identity
	}
	return n.Name == other.Name
}

func (n ModelName) String() string {
	if n.Identity == "" {
		return n.Name
	}
	return n.Name + " (" + n.Identity + ")"
}

const manifestFormat = 1

// ParseManifest parses a manifest.
func ParseManifest(content []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := plainjson.UnmarshalStrict(content, m); err != nil {
		return nil, err
	}
	if m.Format != manifestFormat {
		return nil, fmt.Errorf("it has the format %d, and this version reads %d", m.Format, manifestFormat)
	}
	return m, nil
}

// Manifest reads the directory's manifest; nil if there is none.
func (d Directory) Manifest() (*Manifest, error) {
	content, err := d.manifest().ReadFile()
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := ParseManifest(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.manifest(), err)
	}
	return m, nil
}

// Notes lists the differences from RULER.
func (m *Manifest) Notes() []string {
	if len(m.LeftOut) == 0 {
		return m.Substitutions
	}
	return append([]string{"left out: " + leftOut(m.LeftOut)}, m.Substitutions...)
}

// keep writes the manifest of prompts of these tasks, after it was compared with that of
// earlier ones.
func (d Directory) keep(m *Manifest, tasks []Task) error {
	old, err := d.Manifest()
	if err != nil {
		return err
	}
	if old != nil {
		if err := m.follow(old); err != nil {
			return fmt.Errorf("%s: %w: choose another directory", d.path, err)
		}
		for _, t := range tasks {
			delete(m.LeftOut, t.Name)
		}
	} else if err := d.checkOurs(); err != nil {
		return err
	}
	for name := range m.LeftOut {
		made, err := d.hasPrompts(name)
		if err != nil {
			return err
		}
		if made { // when the input was there
			delete(m.LeftOut, name)
		}
	}
	if err := removeAbandoned(d.manifest()); err != nil {
		return err
	}
	return atomicfile.WriteJSON(d.manifest(), m)
}

// checkOurs fails for a directory without a manifest, which comes first, that has prompts or answers all the same, such as
// those that RULER's scripts made: they would be completed, and lines that are no answers would be cut off.
func (d Directory) checkOurs() error {
	lengths, err := d.lengths()
	if err != nil {
		return err
	}
	for _, length := range lengths {
		for _, name := range []string{"data", "pred"} {
			path := d.path.Join(strconv.Itoa(length), name)
			there, err := path.Exists()
			if err != nil {
				return err
			}
			if there {
				return fmt.Errorf("%s is in the way, and there is no %s: cage did not make it. Move it away, or choose another directory", path, d.manifest().Base())
			}
		}
	}
	return nil
}

// follow compares m with what was before it, and takes over what it does not say itself.
// Inputs may be added, and samples, which follow those that are there.
func (m *Manifest) follow(old *Manifest) error {
	if m.Seed != old.Seed {
		return fmt.Errorf("its prompts were made with the seed %d, not %d", old.Seed, m.Seed)
	}
	if m.Samples < old.Samples {
		return fmt.Errorf("it has %d samples of each task, and %d are asked for", old.Samples, m.Samples)
	}
	for _, key := range slices.Sorted(maps.Keys(old.Settings)) {
		now, ok := m.Settings[key]
		if ok && now != old.Settings[key] {
			return fmt.Errorf("its prompts were made with %s %q, not %q", key, old.Settings[key], now)
		}
		m.Settings[key] = old.Settings[key]
	}
	switch {
	case m.Model == nil:
		m.Model = old.Model
	case old.Model != nil && !m.Model.is(*old.Model):
		return fmt.Errorf("it has answers of %s, not of %s", old.Model, m.Model)
	case old.Model != nil && old.Model.Batch > 0 && m.Model.Batch > 0 && old.Model.Batch != m.Model.Batch:
		return fmt.Errorf("its prompts were answered %d at once, not %d", old.Model.Batch, m.Model.Batch)
	}
	for name, lack := range old.LeftOut {
		m.LeftOut[name] = cmp.Or(m.LeftOut[name], lack)
	}
	m.Substitutions = append(m.Substitutions, slices.DeleteFunc(old.Substitutions, func(s string) bool { return slices.Contains(m.Substitutions, s) })...)
	return nil
}
