package study

import (
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
)

// Study is a loaded study. All cells are resolved and checked, and tables and figures are checked
// against the axes. It holds no results; see [Study.Results].
type Study struct {
	Name string   // study.name, or else the name of the file
	File string   // path of the study file
	Set  []string // changes of the base, as given to [Load]
	Out  string   // the study's directory, relative to the working directory like train.out
	// Parallel is study.parallel, the number of cells that run at once; 0 leaves it to [Run].
	Parallel int
	// StopMinutes is study.stop_minutes: the time that a process has to save its checkpoint after it
	// is asked to stop, before it is killed.
	StopMinutes float64
	// Checkpoints is study.checkpoints: what happens to the checkpoints of a cell that is trained and
	// evaluated.
	Checkpoints string

	Axes    []Axis
	Cells   []Cell // the grid in order, the last axis varying fastest, then single cells
	Tables  []Table
	Figures []Figure

	// Files is the file system of the study's directory; nil means that of the operating system.
	Files vfs.FS

	text        []byte // content of the study file
	init        string // model.init of the base
	evaluations []*positionedEvaluation
}

// Values of study.checkpoints. Checkpoints of a cell from which others are made are always kept.
const (
	KeepCheckpoints   = "keep"
	DeleteCheckpoints = "delete"
)

// Axis is a dimension of a study.
type Axis struct {
	Name   string
	Labels []string // in the order of the file; labels that only single cells have are last
}

// Cell is a run of a study. Cells with equal configurations share a run: they have the same ID,
// Dir, Run and Config.
type Cell struct {
	// ID is the name of the cell's directory: a slug of the cell's labels and a hash of its
	// configuration.
	ID string
	// Hash is the hash of the cell's configuration and quantization, in hexadecimal.
	Hash   string
	Labels map[string]string // one label of each axis, by the axis's name
	Set    []Setting         // the cell's changes to the base, in order of application
	Dir    string
	// Run is the run directory: Dir, or a subdirectory of it if the cell is not trained.
	Run    string
	Config *config.Config // resolved; train.out is Run
	// Quantize describes how the cell's model is made by quantizing another cell's model or
	// model.init; nil if the cell is trained.
	Quantize *Quantize

	start *Cell // the cell whose model this one is initialized from; nil: none
	made  *Cell // the cell from whose model this one is made; nil: none

	environment []string // added to the environment of its processes
}

// Setting is a key of a configuration, with its value.
type Setting struct {
	Key   string `json:"key"`   // dotted, as in --set
	Value string `json:"value"` // in TOML
}

// Table describes a table of the report: the means of a metric over replicates.
type Table struct {
	Title   string
	Metric  string   // one of [SummaryMetrics], or a metric of an evaluation
	Rows    []string // axes whose labels make the rows
	Columns []string // axes whose labels make the columns
	Over    []string // axes over whose labels (the replicates) the mean is taken
	// Baseline holds labels of axes in Rows and Columns: each entry is compared, replicate by
	// replicate, with the entry that has these labels and otherwise its own. Empty means none.
	Baseline map[string]string
	Better   string              // "lower", "higher", or "none" to mark no best value
	Where    map[string][]string // by axis, labels to which the table is restricted
	Format   string              // fmt verb for numbers; "" leaves it to the report
	Best     *Best               // the axis on which each entry chooses a label; nil: none
	// Also lists metrics that the overview, a second table, has beside Metric: those of tables, and
	// [CostMetrics]. Cost is one of these: the overview names the entry that costs the least of those
	// indistinguishable from the best; "" means no conclusion.
	Also []string
	Cost string
}

// CostMetrics returns the names of numbers in summary.json that say what a model has cost.
func CostMetrics() []string { return []string{"seconds", "processor_seconds", "peak_memory_bytes"} }

// Cost returns what the model of a cell has cost, together with the models that it is made from:
// the sum of seconds, or the largest memory. ok is false if that is not known. results holds the
// results by ID.
func (c Cell) Cost(results map[string]Result, metric string) (cost float64, ok bool) {
	for of := &c; of != nil; of = of.made {
		v := results[of.ID].Summary[metric]
		if v <= 0 {
			return 0, false
		}
		if cost += v; !strings.HasSuffix(metric, "seconds") {
			cost = max(cost-v, v)
		}
	}
	return cost, true
}

// Best says how each entry of a table chooses its label of an axis, as each optimizer its own
// learning rate: the label with the best mean.
type Best struct {
	Axis   string `json:"axis"`
	Metric string `json:"metric"` // as in Table
	Better string `json:"better"` // "lower" or "higher"
	// On selects the replicates to choose on, by axes of Over; they are not reported. If On is nil,
	// the reported replicates also choose.
	On map[string][]string `json:"on,omitempty"`
	// Spare skips the training of reported replicates whose label is not the chosen one; see
	// [Study.Prune].
	Spare bool `json:"-"`
}

// Values of [Figure].Kind.
const (
	Bar          = "bar"          // a bar for each label of X, and each series
	Curves       = "curves"       // a metric of metrics.jsonl over the steps, a curve for each series
	Heatmap      = "heatmap"      // a metric over two axes
	Trajectories = "trajectories" // paths of parameters in their first two principal components
	Scatter      = "scatter"      // one metric of summary.json against another, a point for each cell
	Differences  = "differences"  // paired differences from a label of X, a row for each series
)

// Figure describes a figure of the report.
type Figure struct {
	Kind   string
	Title  string
	Metric string // bar, heatmap: as in Table; curves: one of [RecordMetrics]
	X, Y   string // bar, differences: X is an axis; heatmap: axes; scatter: metrics as in Table
	// Baseline is the label of axis X with which the other labels are compared; it is used only for
	// differences.
	Baseline string
	Series   []string // axes whose labels make series
	Over     []string // axes over whose labels (the replicates) the mean is taken
	LogX     bool
	LogY     bool
	Where    map[string][]string // as in Table
	Best     *Best               // as in Table
}

// Axis returns the axis with the given name, and whether there is one.
func (s *Study) Axis(name string) (Axis, bool) {
	i := slices.IndexFunc(s.Axes, func(a Axis) bool { return a.Name == name })
	if i < 0 {
		return Axis{}, false
	}
	return s.Axes[i], true
}

// AxisNames returns the names of the axes in order.
func (s *Study) AxisNames() []string {
	return lists.Map(s.Axes, func(a Axis) string { return a.Name })
}

// OtherAxes returns the names of the axes that are in none of the lists.
func (s *Study) OtherAxes(but ...[]string) []string {
	used := slices.Concat(but...)
	return slices.DeleteFunc(s.AxisNames(), func(a string) bool { return slices.Contains(used, a) })
}

// Label returns the cell's labels in the order of the axes, as in "CAGE · 4 · 0".
func (s *Study) Label(c Cell) string { return strings.Join(c.Of(s.AxisNames()), " · ") }

// Of returns the cell's labels on the given axes.
func (c Cell) Of(axes []string) []string {
	return lists.Map(axes, func(a string) string { return c.Labels[a] })
}

// Matches reports whether, for every axis in where, the cell has one of the given labels.
func (c Cell) Matches(where map[string][]string) bool {
	for axis, labels := range where {
		if !slices.Contains(labels, c.Labels[axis]) {
			return false
		}
	}
	return true
}

// Names in the directories of a study and of a cell.
const (
	cellFile   = "cell.toml"   // the configuration of the cell
	failedFile = "failed.json" // why the cell failed
	logFile    = "train.log"   // output of its training

	evaluationLog = "eval.log"       // output of its evaluations
	checksumsFile = "checksums.json" // of its results, once it is done
)

// grace returns the time that a cell's process has to stop before it is killed.
func (s *Study) grace() time.Duration { return time.Duration(s.StopMinutes * float64(time.Minute)) }

func (s *Study) at(elem ...string) vfs.Path { return vfs.On(s.Files, s.Out).Join(elem...) }

func (s *Study) dir(c Cell) rundir.Dir { return rundir.Dir{Path: s.at(rundir.StudyCells, c.ID)} }
