package kept

import (
	"context"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/study"
)

// FindStale gives the state [study.Stale] to results of [File.Results] that would be made
// of other programs or data now. The error is about cells that could not be compared, whose
// results stay as they are. A model that was quantized after training is stale where the one
// that it was made of is; its own programs are not compared.
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
		if why := f.changed(kept[configuration(r.Cell.ID)], findings[k]); why != "" {
			results[i] = study.Result{Cell: r.Cell, State: study.Stale, Err: why}
		}
	}
	failed := slices.DeleteFunc(findings, func(x config.Finding) bool { return x.Err == nil })
	if len(failed) > 0 {
		return &study.NotCompared{Runs: len(failed), First: failed[0].Err}
	}
	return nil
}

// changed says what a cell would be made of otherwise now; empty: nothing.
func (f *File) changed(c Cell, now config.Finding) string {
	if d := Digest(now.Programs); d != c.Programs {
		return fmt.Sprintf("its plugins give other programs now: their hash is %s, was %s", d, c.Programs)
	}
	return config.ChangedData(f.Sources[c.Source].Data, now.Data)
}
