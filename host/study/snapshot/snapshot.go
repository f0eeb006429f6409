// Package snapshot stores the results of a study in a small file, which can be committed beside a
// document and outlives the runs. It has the numbers of each cell and their provenance. Tables can
// be made from it as from runs.
//
// A cell is identified by its ID, which ends in a hash of its configuration: if configurations in a
// study file change, their cells are not found in the snapshot. Changes of plugins or data are
// detected as for studies whose runs still exist ([File.FindStale]).
//
// host/study trains the cells; host/study/report makes the tables.
package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// File is the stored form of a study's results.
type File struct {
	Study string `json:"study"`
	From  string `json:"from"` // path of the study file, as given
	// Set has the changes of the study's base, as given: --set KEY=VALUE.
	Set []string `json:"set,omitempty"`
	// Sources lists the occasions on which results were added, newest first, with one entry per build.
	Sources []Source `json:"sources"`
	Cells   []Cell   `json:"cells"` // in the order of the study
}

// Source is the provenance of some of the results.
type Source struct {
	Date     string             `json:"date"`     // day on which they were added, such as 2026-11-21
	Revision string             `json:"revision"` // revision of the cage that added them
	Builds   []engine.BuildInfo `json:"builds"`   // builds of cage that ran the cells; has one element
	Plugins  []Plugin           `json:"plugins"`
	Data     map[string]string  `json:"data,omitempty"` // SHA-256 of the token ids in files, by path
}

// Plugin is a plugin that the runs used.
type Plugin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Cell is a cell that is done or has diverged, which is also a result.
type Cell struct {
	ID     string `json:"id"`
	Source int    `json:"source"` // index in File.Sources
	// Programs is a hash of the programs that the cell's plugins returned. It may be empty (unknown)
	// for a model that was quantized after training.
	Programs string `json:"programs,omitempty"`
	// Evaluations holds the evaluations of the cell's model; see [study.Study.Evaluated]. It is nil if
	// there are none, or if an old version of cage wrote the file; cells in such files are assumed to
	// have the study's current evaluations.
	Evaluations map[string]string `json:"asked,omitempty"`
	// Metrics excludes times and speeds that no table of the study has ([study.Table].Also). It is
	// empty if training diverged.
	Metrics map[string]metrics.Number `json:"metrics"`
	// Diverged reports whether training ended because the loss or gradient was not finite.
	Diverged bool `json:"diverged,omitempty"`
}

// Collect returns the results of a study to be kept: those that are known, and those in before (nil
// if there is none) of cells that the study still has and that were not trained again. Of the
// earlier ones, it drops those that were trained on different tokens than the new results.
func Collect(
	s *study.Study, results []study.Result, before *File, revision string, now time.Time,
) (*File, error) {
	out := &File{Study: s.Name, From: s.File, Set: s.Set}
	occasion := Source{Date: now.Format(time.DateOnly), Revision: revision}
	var older []Cell
	kept, seen := before.byConfiguration(), map[string]bool{}
	for _, r := range results {
		if seen[r.Cell.ID] {
			continue
		}
		seen[r.Cell.ID] = true
		if !r.HasOutcome() {
			if c, ok := kept[configurationHash(r.Cell.ID)]; ok {
				c.ID = r.Cell.ID
				older = append(older, c)
			}
			continue
		}
		c, made, err := newCell(s, r)
		if r.Diverged && errors.Is(err, fs.ErrNotExist) { // it was not made, because its source diverged
			continue
		}
		if err == nil {
			c.Evaluations, err = s.Evaluated(r.Cell)
		}
		if err == nil {
			if k, ok := kept[configurationHash(c.ID)]; ok && k.same(c) {
				// It was kept before, and has not been trained again. Costs that no table had then are new.
				k.ID, k.Evaluations = c.ID, c.Evaluations
				maps.Copy(c.Metrics, k.Metrics)
				k.Metrics = c.Metrics
				older = append(older, k)
				continue
			}
			c.Source, err = out.addSource(made, occasion)
		}
		if err != nil {
			return nil, fmt.Errorf("study %s: cell %s: %w", s.Name, r.Cell.ID, err)
		}
		out.Cells = append(out.Cells, c)
	}
	order := map[string]int{}
	for i, c := range s.Cells {
		order[c.ID] = i
	}
	older = slices.DeleteFunc(older, func(c Cell) bool {
		// A source also has the files of other cells. Those of the cells that it is made from count.
		own := map[string]string{}
		for of := &s.Cells[order[c.ID]]; of != nil; of = of.Made() {
			data := &of.Config.Data
			for _, path := range []string{data.Validation, strings.Join(data.Files(), ", ")} {
				if hash, ok := before.Sources[c.Source].Data[path]; ok {
					own[path] = hash
				}
			}
		}
		return out.otherTokens(own) != ""
	})
	moved := map[int]int{} // index in before.Sources to index in out.Sources
	for _, c := range older {
		moved[c.Source] = 0
	}
	for _, i := range slices.Sorted(maps.Keys(moved)) { // in their old order: newest first
		moved[i] = len(out.Sources)
		out.Sources = append(out.Sources, before.Sources[i])
	}
	for _, c := range older {
		c.Source = moved[c.Source]
		out.Cells = append(out.Cells, c)
	}
	slices.SortFunc(out.Cells, func(a, b Cell) int { return cmp.Compare(order[a.ID], order[b.ID]) })
	return out, nil
}

func (c Cell) same(d Cell) bool {
	equal := func(a, b metrics.Number) bool {
		return math.Float64bits(float64(a)) == math.Float64bits(float64(b))
	}
	return c.Programs == d.Programs && c.Diverged == d.Diverged &&
		maps.EqualFunc(c.results(), d.results(), equal)
}

// results returns the numbers, except costs and those that repeat the configuration, which earlier
// versions also stored.
func (c Cell) results() map[string]metrics.Number {
	list := maps.Clone(c.Metrics)
	maps.DeleteFunc(list, func(name string, _ metrics.Number) bool {
		return metrics.Configured(name) || metrics.Timed(name)
	})
	return list
}

// Results returns a result for each of the study's cells. Cells in f are done, failed if they
// diverged, or unevaluated if the study's evaluations have changed. All others are missing.
func (f *File) Results(s *study.Study) []study.Result {
	kept, out := f.byConfiguration(), make([]study.Result, len(s.Cells))
	for i, c := range s.Cells {
		out[i] = study.Result{Cell: c, State: study.Missing}
		k, ok := kept[configurationHash(c.ID)]
		if !ok {
			continue
		}
		if k.Diverged {
			out[i].State, out[i].Diverged, out[i].Err = study.Failed, true, "it diverged"
			continue
		}
		out[i].State, out[i].Summary = study.Done, map[string]float64{}
		for name, x := range k.Metrics {
			out[i].Summary[name] = float64(x)
		}
		if out[i].Diverged = study.NotFinite(out[i].Summary); !out[i].Diverged && k.Evaluations != nil {
			s.FindUnevaluated(&out[i], k.Evaluations)
		}
	}
	s.FindDiverged(out)
	return out
}

// configurationHash returns the hash of the configuration, which is the end of a cell's ID. It
// follows the labels, which may have changed.
func configurationHash(id string) string { return id[strings.LastIndexByte(id, '-')+1:] }

// byConfiguration returns the cells by the hash of their configuration. f may be nil.
func (f *File) byConfiguration() map[string]Cell {
	cells := map[string]Cell{}
	if f != nil {
		for _, c := range f.Cells {
			cells[configurationHash(c.ID)] = c
		}
	}
	return cells
}

// Unknown returns the IDs of the cells in f that the study no longer has: its file has changed.
func (f *File) Unknown(s *study.Study) []string {
	known := map[string]bool{}
	for _, c := range s.Cells {
		known[configurationHash(c.ID)] = true
	}
	var list []string
	for _, c := range f.Cells {
		if !known[configurationHash(c.ID)] {
			list = append(list, c.ID)
		}
	}
	return list
}

// SourcesOf returns the distinct sources of the given cells, newest first.
func (f *File) SourcesOf(cells map[string]bool) []Source {
	kept, used := f.byConfiguration(), map[int]bool{}
	for id := range cells {
		if c, ok := kept[configurationHash(id)]; ok && cells[id] {
			used[c.Source] = true
		}
	}
	return lists.Map(slices.Sorted(maps.Keys(used)), func(i int) Source { return f.Sources[i] })
}

type provenance struct {
	Build    engine.BuildInfo  `json:"build"`
	Plugins  []Plugin          `json:"plugins"`
	Programs map[string]string `json:"programs"`
}

func newCell(s *study.Study, r study.Result) (Cell, Source, error) {
	c := Cell{ID: r.Cell.ID, Metrics: map[string]metrics.Number{},
		Diverged: r.Diverged && !r.Trained()}
	for name, x := range r.Summary {
		asked := func(t study.Table) bool { return slices.Contains(t.Also, name) }
		if !metrics.Timed(name) || slices.ContainsFunc(s.Tables, asked) {
			c.Metrics[name] = metrics.Number(x)
		}
	}
	dir := rundir.At(r.Cell.Run)
	var p provenance
	if err := plainjson.ReadFile(dir.Provenance(), &p); err != nil {
		return c, Source{}, fmt.Errorf("cannot read the provenance: %w", err)
	}
	if r.Cell.Quantize == nil {
		if c.Programs = digest.Named(p.Programs); c.Programs == "" {
			return c, Source{}, fmt.Errorf("%s names no programs", dir.Provenance())
		}
	}
	cfg, err := config.Load(dir.Config().Name, nil)
	if err != nil {
		return c, Source{}, err
	}
	builds := []engine.BuildInfo{p.Build}
	return c, Source{Builds: builds, Plugins: p.Plugins, Data: cfg.Data.Hashes()}, nil
}

// otherTokens returns a file whose tokens differ from those in the sources; "" if there is none.
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

// addSource adds a run's provenance (made) to the source with the same build, or to a new source
// copied from occasion, and returns the source's index. All runs must have used the same tokens.
func (f *File) addSource(made, occasion Source) (int, error) {
	if path := f.otherTokens(made.Data); path != "" {
		return 0, fmt.Errorf("it was trained on different tokens in %s than other cells: "+
			"their results cannot be compared", path)
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

// FindStale sets the state of those results of [File.Results] whose programs or data have changed
// to [study.Stale]. The error reports cells that could not be compared, whose results are left
// unchanged. A model that was quantized after training is stale if its source is stale; its own
// programs are not compared.
func (f *File) FindStale(
	ctx context.Context, s *study.Study, results []study.Result, survey study.Survey,
) error {
	defer s.FindRemade(results)
	kept := f.byConfiguration()
	compared := func(r study.Result) bool {
		return r.HasOutcome() && kept[configurationHash(r.Cell.ID)].Programs != ""
	}
	stale := func(r study.Result, now config.Finding) string {
		c := kept[configurationHash(r.Cell.ID)]
		if programs := digest.Named(now.Programs); programs != c.Programs {
			return fmt.Sprintf("its plugins now return other programs: the hash is %s, was %s",
				programs, c.Programs)
		}
		return config.ChangedData(f.Sources[c.Source].Data, now.Data)
	}
	return study.MarkStale(ctx, results, survey, compared, stale)
}

// Write writes the file with a line per cell, so that diffs are readable.
func (f *File) Write(path string) error {
	var b bytes.Buffer
	head, err := json.MarshalIndent(File{f.Study, f.From, f.Set, f.Sources, nil}, "", "  ")
	if err != nil {
		return err
	}
	b.Write(bytes.TrimSuffix(head, []byte("null\n}")))
	b.WriteByte('[')
	for i, c := range f.Cells {
		line, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n    ")
		b.Write(line)
	}
	b.WriteString("\n  ]\n}\n")
	return atomicfile.WriteBytes(vfs.At(path), b.Bytes())
}

// Read reads a snapshot. Errors name the file.
func Read(path string) (*File, error) {
	text, err := vfs.At(path).ReadFile()
	if err != nil {
		return nil, err
	}
	f, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s was not written by 'cage study keep': %w", path, err)
	}
	return f, nil
}

func decode(text []byte) (*File, error) {
	f := &File{}
	if err := plainjson.UnmarshalStrict(text, f); err != nil {
		return nil, err
	}
	if f.Study == "" {
		return nil, errors.New("it names no study")
	}
	seen := map[string]bool{}
	for i, c := range f.Cells {
		switch {
		case c.ID == "":
			return nil, fmt.Errorf("cell %d has no ID", i)
		case seen[configurationHash(c.ID)]:
			return nil, fmt.Errorf("two cells have the configuration of %s", c.ID)
		case c.Source < 0 || c.Source >= len(f.Sources):
			return nil, fmt.Errorf("cell %s has source %d, but there are %d sources",
				c.ID, c.Source, len(f.Sources))
		}
		seen[configurationHash(c.ID)] = true
	}
	return f, nil
}

// ReadFor reads a snapshot and checks that it belongs to the study.
func ReadFor(s *study.Study, path string) (*File, error) {
	file, err := Read(path)
	if err != nil {
		return nil, err
	}
	if file.Study != s.Name {
		return nil, fmt.Errorf("%s has results of the study %s, not of %s (%s)",
			path, file.Study, s.Name, s.File)
	}
	return file, nil
}

// Update creates the snapshot at path, or adds to it. If the file has results of cells that the
// study no longer has, they are dropped if forget is set; otherwise that is an error.
func Update(
	path string, s *study.Study, results []study.Result, forget bool, revision string, now time.Time,
) (*File, error) {
	before, err := ReadFor(s, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	before = cmp.Or(before, &File{})
	if unknown := before.Unknown(s); len(unknown) > 0 && !forget {
		return nil, fmt.Errorf("%s has results of %d cells that %s no longer has, such as %s: "+
			"give --forget to drop them, or another --out", path, len(unknown), s.File, unknown[0])
	}
	file, err := Collect(s, results, before, revision, now)
	if err != nil {
		return nil, err
	}
	if len(file.Cells) == 0 {
		return nil, fmt.Errorf("no cell of %s is done: there is nothing to keep", s.File)
	}
	to, err := atomicfile.Target(path)
	if err != nil {
		return nil, err
	}
	return file, file.Write(to.Name)
}
