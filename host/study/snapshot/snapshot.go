// Package snapshot stores the results of a study in one small file, which can be committed
// beside a document after the runs themselves are gone: for each cell its numbers, and
// what they were made with. Tables can be made from it as from the runs.
//
// A cell is identified by its ID, which ends in a hash of its configuration: if a study
// file now asks for something else, nothing is found. That plugins or data have changed
// is detected as for studies whose runs still exist ([File.FindStale]).
//
// host/study trains the cells; host/study/report makes the tables.
package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
)

// File is the stored form of a study's results.
type File struct {
	Study string `json:"study"`
	From  string `json:"from"` // path of the study file, as it was given
	// Sources lists the occasions on which results were added, the newest first, one for each
	// build.
	Sources []Source `json:"sources"`
	Cells   []Cell   `json:"cells"` // in the order of the study
}

// Source says with what some of the results were made.
type Source struct {
	Date     string             `json:"date"`     // when they were added, as in 2026-11-21
	Revision string             `json:"revision"` // of the cage that added them
	Builds   []engine.BuildInfo `json:"builds"`   // of the runs, one
	Plugins  []Plugin           `json:"plugins"`
	Data     map[string]string  `json:"data,omitempty"` // SHA-256 of the token ids in files, by their paths
}

// Plugin is a plugin that took part in runs.
type Plugin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Cell is a cell that is done, or that diverged, which is a result, too.
type Cell struct {
	ID     string `json:"id"`
	Source int    `json:"source"` // its index in File.Sources
	// Programs is a hash of the programs that its plugins returned; empty if it is not
	// known, as may be for a model that was quantized after training.
	Programs string `json:"programs,omitempty"`
	// Asked holds the evaluations that its model was asked, see [study.Study.Evaluated]. It is nil
	// if there are none, and in files of versions that did not record them; such cells are assumed
	// to have been asked what the study asks now.
	Asked   map[string]string         `json:"asked,omitempty"`
	Metrics map[string]metrics.Number `json:"metrics"` // without times and speeds; empty if it diverged
	// Diverged says that the training ended because the loss or gradient was not finite.
	Diverged bool `json:"diverged,omitempty"`
}

// Take returns what is to be kept of a study: the results that are done and, of those
// that were kept before (nil: none), the ones that the study still has and that were not
// trained again. Of the latter, those that were trained on other tokens than the results
// are left out.
func Take(s *study.Study, results []study.Result, before *File, revision string, now time.Time) (*File, error) {
	out := &File{Study: s.Name, From: s.File}
	occasion := Source{Date: now.Format(time.DateOnly), Revision: revision}
	var older []Cell
	kept, seen := before.byConfiguration(), map[string]bool{}
	for _, r := range results {
		if seen[r.Cell.ID] {
			continue
		}
		seen[r.Cell.ID] = true
		if !r.Known() {
			if c, ok := kept[configuration(r.Cell.ID)]; ok {
				c.ID = r.Cell.ID
				older = append(older, c)
			}
			continue
		}
		c, made, err := take(r)
		if err == nil {
			c.Asked, err = s.Evaluated(r.Cell)
		}
		if err == nil {
			if k, ok := kept[configuration(c.ID)]; ok && k.same(c) {
				k.ID, k.Asked = c.ID, c.Asked // it was taken over before, and nobody trained it again
				older = append(older, k)
				continue
			}
			c.Source, err = out.note(made, occasion)
		}
		if err != nil {
			return nil, fmt.Errorf("study %s: cell %s: %w", s.Name, r.Cell.ID, err)
		}
		out.Cells = append(out.Cells, c)
	}
	out.takeOver(before, slices.DeleteFunc(older, func(c Cell) bool { return out.otherTokens(before.Sources[c.Source].Data) != "" }))
	order := map[string]int{}
	for i, c := range s.Cells {
		order[c.ID] = i
	}
	slices.SortFunc(out.Cells, func(a, b Cell) int { return cmp.Compare(order[a.ID], order[b.ID]) })
	return out, nil
}

func (c Cell) same(d Cell) bool {
	equal := func(a, b metrics.Number) bool { return math.Float64bits(float64(a)) == math.Float64bits(float64(b)) }
	return c.Programs == d.Programs && c.Diverged == d.Diverged && maps.EqualFunc(c.results(), d.results(), equal)
}

// results are the numbers without those that repeat the configuration, of which kept results of
// earlier versions have more.
func (c Cell) results() map[string]metrics.Number {
	list := maps.Clone(c.Metrics)
	maps.DeleteFunc(list, func(name string, _ metrics.Number) bool { return metrics.Configured(name) })
	return list
}

// takeOver adds cells of another file with their sources.
func (f *File) takeOver(before *File, cells []Cell) {
	moved := map[int]int{}
	for _, c := range cells {
		to, ok := moved[c.Source]
		if !ok {
			to = len(f.Sources)
			moved[c.Source] = to
			f.Sources = append(f.Sources, before.Sources[c.Source])
		}
		c.Source = to
		f.Cells = append(f.Cells, c)
	}
}

// Results returns a result for each of the study's cells. Kept cells are done, failed if they
// diverged, or unevaluated if the study asks something else now; all others are missing.
func (f *File) Results(s *study.Study) []study.Result {
	kept, out := f.byConfiguration(), make([]study.Result, len(s.Cells))
	for i, c := range s.Cells {
		out[i] = study.Result{Cell: c, State: study.Missing}
		k, ok := kept[configuration(c.ID)]
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
		if k.Asked != nil {
			s.FindUnevaluated(&out[i], k.Asked)
		}
	}
	return out
}

// configuration is the end of a cell's ID: the hash of its configuration. Its labels, which
// stand before that, may be others now.
func configuration(id string) string { return id[strings.LastIndexByte(id, '-')+1:] }

// byConfiguration returns the cells by their configurations; a file that is nil has none.
func (f *File) byConfiguration() map[string]Cell {
	cells := map[string]Cell{}
	if f != nil {
		for _, c := range f.Cells {
			cells[configuration(c.ID)] = c
		}
	}
	return cells
}

// Unknown lists the IDs of kept cells that the study no longer has, because its file asks
// for something else now.
func (f *File) Unknown(s *study.Study) []string {
	known := map[string]bool{}
	for _, c := range s.Cells {
		known[configuration(c.ID)] = true
	}
	var list []string
	if f == nil {
		return nil
	}
	for _, c := range f.Cells {
		if !known[configuration(c.ID)] {
			list = append(list, c.ID)
		}
	}
	return list
}

// SourcesOf returns the sources of the given cells, each once, the newest first.
func (f *File) SourcesOf(cells map[string]bool) []Source {
	kept, used := f.byConfiguration(), map[int]bool{}
	for id := range cells {
		if c, ok := kept[configuration(id)]; ok && cells[id] {
			used[c.Source] = true
		}
	}
	var list []Source
	for _, i := range slices.Sorted(maps.Keys(used)) {
		list = append(list, f.Sources[i])
	}
	return list
}
