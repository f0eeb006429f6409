package study

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plaintoml"
)

// RunOptions are the options of [Run].
type RunOptions struct {
	// Parallel is the number of cells to train at once; 0 means the number in the study file. If that
	// is also 0, the cores determine it: one cell per core if the models are small, one cell on all
	// cores if they are large, and on GPUs as many cells as can have their own GPUs.
	Parallel int
	// Retry also trains failed cells, once; they continue where they stopped.
	Retry bool
	// Only restricts the cells to those that match these labels, by axis; nil means all cells.
	Only map[string][]string
	// IDs restricts the cells further, to those with these IDs; nil means no restriction.
	IDs []string
	// Share lets several processes with Share run the study at the same time, on this machine or
	// others that see its directory. Each cell is trained by one of them. Run returns when all cells
	// are done, whichever process trained them.
	Share bool
	// Stored holds results of all cells from another source, such as a snapshot, in the order of the
	// study. Cells with a known outcome there are not trained, unless another cell starts from their
	// model. These results also count when tables choose ([Study.Prune]). Nil means none.
	Stored []Result
	// Command is the program that trains, with its first arguments. The path of a configuration,
	// --resume, --quiet and --lifeline=TIME are appended. Nil means this executable with "train".
	Command []string
	// Tool is the program that quantizes and evaluates, followed by its first arguments. Those of the
	// cage command are appended. Nil means this executable.
	Tool []string
	// Survey runs before any cell is trained. It finds stale runs, and problems in the configurations
	// of the cells to be trained that loading the study cannot detect, such as invalid plugin
	// parameters. If it is nil, such problems are found only when a cell is trained, and no run is
	// considered stale.
	Survey Survey
	// KeepStale leaves stale runs as they are. Otherwise they are moved away and trained again.
	KeepStale bool
	// Planned, if not nil, is called with the plan before anything is trained.
	Planned func(Plan)
	// Watch, if not nil, is called on every change and twice a second, but never concurrently.
	Watch func(console.Progress)

	pending map[string]bool // the failed cells still to be retried, by ID; nil: all
}

// Outcome counts the selected runs by state. Cells that share a run count once.
type Outcome struct {
	Cells       int `json:"cells"`
	Done        int `json:"done"`
	Failed      int `json:"failed"`
	Running     int `json:"running"`
	Interrupted int `json:"interrupted"`
	Missing     int `json:"missing"`
	Unevaluated int `json:"unevaluated"`
	Stale       int `json:"stale"`
	Trained     int `json:"trained"` // done by this call
}

// Plan describes the work that [Run] does.
type Plan struct {
	Results []Result // one for each selected run
	Run     []Cell   // the cells to train, quantize or evaluate, in order
	Waiting []Cell   // cells that wait until a table can choose; they are not in Run
	AtOnce  int      // cells running at once
	Threads int      // threads of each cell
}

// ErrInterrupted is returned if the context ended before the study did. Cells that were being
// trained have saved checkpoints, and continue in the next [Run].
var ErrInterrupted = errors.New("the study was interrupted")

// Plan returns the work that [Run] would do.
func (s *Study) Plan(ctx context.Context, o RunOptions) (Plan, error) {
	results, err := s.Results()
	if err != nil {
		return Plan{}, err
	}
	// Errors are ignored: check reports problems of the cells to be trained, with their positions.
	// All cells are compared, since tables also choose by cells that are not selected.
	_ = s.FindStale(ctx, results, o.Survey)
	known := slices.Clone(results)
	for i := range known {
		if o.Stored != nil && o.Stored[i].HasOutcome() && !known[i].HasOutcome() {
			known[i] = o.Stored[i]
		}
	}
	unneeded, waiting := s.Prune(known)
	var p Plan
	selected := map[string]bool{} // by ID
	for i, c := range s.Cells {
		asked := c.Matches(o.Only) && (o.IDs == nil || slices.Contains(o.IDs, c.ID))
		if asked && (o.Stored == nil || !o.Stored[i].HasOutcome()) &&
			(!unneeded[c.ID] || results[i].HasOutcome()) {
			for of := &c; of != nil; of = of.made { // also the cells from whose models it is made
				selected[of.ID] = true
			}
		}
	}
	for _, r := range results {
		if selected[r.Cell.ID] && (!unneeded[r.Cell.ID] || r.HasOutcome()) {
			p.Results, selected[r.Cell.ID] = append(p.Results, r), false // cells may share a run
		}
	}
	states := statesOf(p.Results)
	// If the source of a model is missing, and will be trained from scratch, the model is stale.
	s.markRemade(p.Results, func(_, source Cell) bool { return states[source.ID] == Missing })
	runs := []State{Missing, Interrupted, Unevaluated}
	if o.Retry {
		runs = append(runs, Failed)
	}
	if !o.KeepStale {
		runs = append(runs, Stale)
	}
	for _, r := range p.Results {
		if waiting[r.Cell.ID] && !r.HasOutcome() {
			p.Waiting = append(p.Waiting, r.Cell)
		} else if slices.Contains(runs, r.State) &&
			(r.State != Failed || o.pending == nil || o.pending[r.Cell.ID]) {
			p.Run = append(p.Run, r.Cell)
		}
	}
	// Sources come before the models that are made from them.
	slices.SortStableFunc(p.Run, func(a, b Cell) int { return cmp.Compare(a.depth(), b.depth()) })
	cores, gpus := runtime.GOMAXPROCS(0), len(newGPUs().names)
	p.AtOnce, p.Threads = share(p.Run, cores, gpus, cmp.Or(o.Parallel, s.Parallel))
	return p, nil
}

// Run trains the cells that are not done, each in a process of its own, so that a crash of one does
// not affect the others. If a cell fails, its error is recorded, and it is not tried again without
// Retry. If the process of a single cell is stopped by a signal, the other cells continue, and Run
// returns [ErrInterrupted] at the end. When ctx ends, the running cells save checkpoints, and Run
// returns [ErrInterrupted]. They also save checkpoints if this process is killed.
func Run(ctx context.Context, s *Study, o RunOptions) (Outcome, error) {
	self, err := os.Executable()
	if err != nil {
		return Outcome{}, err
	}
	if o.Tool == nil {
		o.Tool = []string{self}
	}
	if o.Command == nil {
		o.Command = []string{self, "train"}
	}
	if err := s.checkOurs(); err != nil {
		return Outcome{}, err
	}
	if err := s.at(rundir.StudyCells).MkdirAll(); err != nil {
		return Outcome{}, err
	}
	lock, err := s.lock(ctx, o.Share)
	if err != nil {
		return Outcome{}, err
	}
	if !o.Share { // no other process writes there
		err = removeAbandoned(s.at(), rundir.StudyFile)
	}
	var out Outcome
	if err == nil {
		out, err = s.rounds(ctx, o)
	}
	return out, errors.Join(err, lock.Unlock())
}

// rounds trains cells until none is left. When cells are done, tables may choose further ones, and
// processes that share the study may leave cells to this one.
func (s *Study) rounds(ctx context.Context, o RunOptions) (Outcome, error) {
	for trained := 0; ; {
		plan, err := s.Plan(ctx, o)
		if err != nil {
			return Outcome{}, err
		}
		if err := s.checkModels(plan); err != nil {
			return Outcome{}, err
		}
		if err := s.check(ctx, plan.Run, o.Survey); err != nil {
			return Outcome{}, err
		}
		if o.Planned != nil {
			o.Planned(plan)
		}
		if err := atomicfile.WriteBytes(s.at(rundir.StudyFile), s.text); err != nil {
			return Outcome{}, err
		}
		// Cells of earlier versions have no checksums, and a stop may have come before they were written.
		for _, result := range plan.Results {
			if result.State == Done && !o.Share {
				if err := s.writeChecksums(result.Cell); err != nil {
					return Outcome{}, err
				}
			}
		}
		r := newRunner(s, o, plan)
		err = r.run(ctx)
		out := r.outcome()
		trained += out.Trained
		more := len(plan.Waiting) > 0 && out.Trained+r.found > 0 || len(r.later) > 0
		if more && err == nil && ctx.Err() == nil && len(r.stopped) == 0 {
			o.pending = map[string]bool{} // the other failed cells have been retried
			for _, c := range r.later {
				_, o.pending[c.ID] = r.attempts[c.ID]
			}
			continue
		}
		out.Trained = trained
		unfinished := out.Interrupted + out.Missing + out.Stale + out.Unevaluated + out.Running
		if err == nil && (ctx.Err() != nil && unfinished > 0 || len(r.stopped) > 0) {
			err = fmt.Errorf("%w: %d of %d cells are done", ErrInterrupted, out.Done, out.Cells)
		}
		return out, err
	}
}

// checkOurs returns an error if the directory is not this study's: its study.toml is not a study
// file, or differs from this one although no study has run there.
func (s *Study) checkOurs() error {
	began, err := s.at(rundir.StudyCells).Exists()
	if err != nil {
		return err
	}
	path := s.at(rundir.StudyFile)
	return atomicfile.CheckOurs(path, func(content io.Reader) bool {
		text, err := io.ReadAll(io.LimitReader(content, 1<<20)) // longer than any study file
		if err != nil || !began || bytes.Equal(text, s.text) {
			return err == nil && bytes.Equal(text, s.text)
		}
		doc, err := plaintoml.Parse(path.Name, text)
		return err == nil && (doc.Values()["study"] != nil || doc.Values()["base"] != nil)
	})
}

// checkModels returns an error if work of the plan needs models whose checkpoints were deleted.
func (s *Study) checkModels(p Plan) error {
	planned := map[string]Result{}
	for _, r := range p.Results {
		planned[r.Cell.ID] = r
	}
	kept := func(c Cell) bool { // its model is not made again
		r := planned[c.ID]
		return r.Trained() && r.State != Stale
	}
	var deleted []string
	for _, c := range p.Run {
		from := &c // the cell whose model is needed
		if !kept(c) {
			from = c.made
		}
		if from == nil || !kept(*from) || slices.Contains(deleted, from.Dir) {
			continue
		}
		// Deletion leaves the empty directory.
		files, err := s.run(*from).Checkpoints().ReadDir()
		if err != nil || len(files) > 0 {
			continue
		}
		now := []Result{s.readCellResult(c, false)} // another process may have done it meanwhile
		if s.findOutdated(now); now[0].State != Done {
			deleted = append(deleted, from.Dir)
		}
	}
	if len(deleted) == 0 {
		return nil
	}
	return fmt.Errorf("the checkpoints of %d cells were deleted when they were done "+
		"(study.checkpoints), but their models are needed: delete their directories to train them "+
		"again: %s", len(deleted), strings.Join(deleted, " "))
}

// check runs the survey and prepares the questions of evaluations before any cell is trained. It
// reports all problems together.
func (s *Study) check(ctx context.Context, cells []Cell, survey Survey) error {
	var found problems
	if survey != nil && len(cells) > 0 {
		list := lists.Map(cells, func(c Cell) *config.Config { return c.Config })
		for i, f := range survey(ctx, list) {
			if f.Err != nil {
				found.add(f.Err, s.Label(cells[i]))
			}
		}
	}
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	if len(cells) == 0 {
		return nil
	}
	errs := found.list(len(cells))
	for _, e := range s.evaluations {
		if err := e.Check(); err != nil {
			wrong := e.position
			wrong.Msg = err.Error()
			errs = append(errs, &wrong)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	errs.Sort()
	return errs
}
