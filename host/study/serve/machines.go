package serve

import (
	"cmp"
	"fmt"
	"github.com/cage-qat/cage/host/study"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// holders are who works on which cell, by the study's directory and the cell's ID.
type holders map[string]map[string]study.Holder

// holdersOf asks the studies that have a run which is not done: to ask one takes a look at the lock
// of each cell.
func holdersOf(list []*rundir.Run) holders {
	all := holders{}
	for _, run := range list {
		dir := studyOf(run)
		if _, known := all[dir]; known || dir == "" || run.State == rundir.Done {
			continue
		}
		cells, err := study.Holders(vfs.At(dir))
		if err != nil { // then it is not known, but all else is
			cells = nil
		}
		all[dir] = cells
	}
	return all
}

// of says who works on a run; "" where that is not known.
func (h holders) of(run *rundir.Run, now time.Time) string {
	id := filepath.Base(run.Dir)
	if id == rundir.StudyModel {
		id = filepath.Base(filepath.Dir(run.Dir))
	}
	who, ok := h[studyOf(run)][id]
	if !ok || who.Since.IsZero() {
		return ""
	}
	return who.Text(now)
}

func (h holders) machines(study string) string {
	counts := map[string]int{}
	for _, who := range h[study] {
		counts[cmp.Or(who.Machine, "?")]++
	}
	var parts []string
	for _, machine := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d on %s", counts[machine], machine))
	}
	return strings.Join(parts, ", ")
}
