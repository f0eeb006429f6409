package kept

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/digest"
)

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

// Changed counts the cells in results whose runs had other programs or data than the kept ones, and describes the
// difference for the first of them. A run that does not record what it was made of is not counted.
func (f *File) Changed(results []study.Result) (cells int, first string) {
	kept, seen := f.byConfiguration(), map[string]bool{}
	for _, r := range results {
		was, ok := kept[configuration(r.Cell.ID)]
		if !ok || !r.Known() || seen[r.Cell.ID] {
			continue
		}
		seen[r.Cell.ID] = true
		now, source, err := take(r)
		if err != nil {
			continue
		}
		if why := f.changed(was, now.Programs, source.data); why != "" {
			cells++
			first = cmp.Or(first, why)
		}
	}
	return cells, first
}

// changed says what a cell is made of otherwise now, given the digest of its programs and the hashes of its data; empty: nothing.
func (f *File) changed(c Cell, programs string, data map[string]string) string {
	if programs != c.Programs {
		return fmt.Sprintf("its plugins give other programs now: their hash is %s, was %s", programs, c.Programs)
	}
	return config.ChangedData(f.Sources[c.Source].Data, data)
}
