package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/plainjson"
)

// provenance is what is read of that of a run.
type provenance struct {
	Build    engine.BuildInfo  `json:"build"`
	Plugins  []Plugin          `json:"plugins"`
	Programs map[string]string `json:"programs"`
}

// take makes the cell of a result, and returns what its run was made with.
func take(r study.Result) (Cell, Source, error) {
	c := Cell{ID: r.Cell.ID, Metrics: map[string]metrics.Number{}, Diverged: r.Diverged}
	for name, x := range r.Summary {
		if !metrics.Timed(name) {
			c.Metrics[name] = metrics.Number(x)
		}
	}
	dir := rundir.At(r.Cell.Run)
	path := dir.Provenance()
	text, err := path.ReadFile()
	var p provenance
	if err == nil {
		err = plainjson.Unmarshal(text, &p)
	}
	if err != nil {
		return c, Source{}, fmt.Errorf("what its run was made of cannot be read: %s: %w", path, err)
	}
	if r.Cell.Quantize == nil {
		if c.Programs = digest.Named(p.Programs); c.Programs == "" {
			return c, Source{}, fmt.Errorf("what its run was made of is not known: %s names no programs", path)
		}
	}
	cfg, err := config.Load(dir.Config().Name, nil)
	if err != nil {
		return c, Source{}, err
	}
	return c, Source{Builds: []engine.BuildInfo{p.Build}, Plugins: p.Plugins, Data: cfg.Data.Hashes()}, nil
}

// otherTokens names a file that held others than for the cells of the sources; empty: none did.
func (f *File) otherTokens(data map[string]string) string {
	for _, path := range slices.Sorted(maps.Keys(data)) {
		for _, s := range f.Sources {
			if was, ok := s.Data[path]; ok && was != data[path] {
				return path
			}
		}
	}
	return ""
}

// note adds what a run was made with to the source of its build, which is of the given
// occasion, and returns the place of that source. All runs must have had the same tokens.
func (f *File) note(made, occasion Source) (int, error) {
	if path := f.otherTokens(made.Data); path != "" {
		return 0, fmt.Errorf("%s held other tokens when it was trained than for other cells: a table of both would compare nothing", path)
	}
	i := slices.IndexFunc(f.Sources, func(s Source) bool { return s.Builds[0] == made.Builds[0] })
	if i < 0 {
		i = len(f.Sources)
		occasion.Builds = made.Builds
		f.Sources = append(f.Sources, occasion)
	}
	s := &f.Sources[i]
	for _, u := range made.Plugins {
		if !slices.Contains(s.Plugins, u) {
			s.Plugins = append(s.Plugins, u)
		}
	}
	slices.SortFunc(s.Plugins, func(a, b Plugin) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	if s.Data == nil {
		s.Data = map[string]string{}
	}
	maps.Copy(s.Data, made.Data)
	return i, nil
}

// FindStale gives the state [study.Stale] to those results of [File.Results] that would
// be made with other programs or data now. The error is about cells that could not be
// compared, whose results stay as they are. A model that was quantized after training is
// stale if the model that it was made from is; its own programs are not compared.
func (f *File) FindStale(ctx context.Context, s *study.Study, results []study.Result, survey study.Survey) error {
	defer s.FindRemade(results)
	var list []*config.Config
	kept := f.byConfiguration()
	at := map[string]int{} // in list, by ID
	for _, r := range results {
		if _, known := at[r.Cell.ID]; !known && r.Known() && kept[configuration(r.Cell.ID)].Programs != "" {
			at[r.Cell.ID] = len(list)
			list = append(list, r.Cell.Config)
		}
	}
	if len(list) == 0 {
		return nil
	}
	findings := survey(ctx, list)
	for i, r := range results {
		k, compared := at[r.Cell.ID]
		if !compared || findings[k].Err != nil {
			continue
		}
		if why := f.changed(kept[configuration(r.Cell.ID)], digest.Named(findings[k].Programs), findings[k].Data); why != "" {
			results[i] = study.Result{Cell: r.Cell, State: study.Stale, Err: why}
		}
	}
	failed := slices.DeleteFunc(findings, func(x config.Finding) bool { return x.Err == nil })
	if len(failed) > 0 {
		return &study.NotCompared{Runs: len(failed), First: failed[0].Err}
	}
	return nil
}

// changed describes what has changed in what a cell is made of, given the digest of its programs
// and the hashes of its data; it is empty if nothing has.
func (f *File) changed(c Cell, programs string, data map[string]string) string {
	if programs != c.Programs {
		return fmt.Sprintf("its plugins give other programs now: their hash is %s, was %s", programs, c.Programs)
	}
	return config.ChangedData(f.Sources[c.Source].Data, data)
}
