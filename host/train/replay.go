package train

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
)

// ReplayOptions select the part of a run to replay, and configure the replay.
type ReplayOptions struct {
	// From is the step to begin with: the step of a checkpoint other than the last, or 0 for the
	// beginning of the run. Nil means the second-to-last checkpoint, or 0 if there is only one.
	From    *int
	Finder  *plugin.Finder // nil means plugin.NewFinder()
	Logger  hclog.Logger   // nil discards messages
	Console io.Writer      // receives the progress display; nil shows none
}

// Replayed is the result of a replay.
type Replayed struct {
	Run      string           `json:"run"`
	From     int              `json:"from"` // From and To are step numbers
	To       int              `json:"to"`
	Tensors  int              `json:"tensors"` // number of tensors compared
	Numbers  int64            `json:"numbers"` // total number of elements
	Recorded engine.BuildInfo `json:"recorded"`
	Now      engine.BuildInfo `json:"now"` // the build that computed the replay
	// Differences is empty if every bit is the same.
	Differences []Difference `json:"differences"`
}

// Replay recomputes the steps between two checkpoints of the run in dir, with its configuration,
// plugins and data, in a temporary directory, and compares the resulting state with the second
// checkpoint. It only reads the run itself.
func Replay(ctx context.Context, dir string, o ReplayOptions) (*Replayed, error) {
	run := rundir.At(dir)
	cfg, err := run.LoadConfig()
	if err != nil {
		return nil, err
	}
	if o.Finder, o.Logger, err = plugin.Defaults(o.Finder, o.Logger); err != nil {
		return nil, err
	}
	from, to, err := replayWindow(run, o.From)
	defer func() { // also after an error
		from.Close()
		to.Close()
	}()
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "cage-verify-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	again := rundir.At(filepath.Join(scratch, filepath.Base(run.Name)))
	if cfg, err = prepareReplay(ctx, cfg, run, again, from, o.Finder); err != nil {
		return nil, err
	}
	_, err = Run(ctx, cfg, Options{Resume: true, StopAfter: to.Step, Finder: o.Finder, Logger: o.Logger, Console: o.Console, replay: true})
	if err != nil && (ctx.Err() != nil || !errors.Is(err, ErrInterrupted)) {
		return nil, fmt.Errorf("replay steps %d to %d: %w", from.Step, to.Step, err)
	}
	got, err := checkpoint.Open(again.Checkpoints().Join(checkpoint.FileName(to.Step)))
	if err != nil {
		return nil, err
	}
	defer got.Close()
	out := &Replayed{Run: dir, From: from.Step, To: to.Step, Tensors: len(to.Tensors)}
	for _, t := range to.Infos() {
		out.Numbers += (t.End - t.Begin) * 8 / int64(t.DType.Bits())
	}
	if out.Differences, err = compareStates(to.State, got.State); err != nil {
		return nil, err
	}
	return out, errors.Join(to.Meta.Get(provenance.BuildKey, &out.Recorded), got.Meta.Get(provenance.BuildKey, &out.Now))
}

// replayWindow opens the two checkpoints; the caller closes them, also after an error. The state
// before the first step has no tensors.
func replayWindow(run rundir.Dir, first *int) (from, to *checkpoint.File, err error) {
	from, to = &checkpoint.File{}, &checkpoint.File{}
	entries, err := checkpoint.List(run.Checkpoints())
	if err != nil {
		return from, to, err
	}
	if len(entries) == 0 || entries[len(entries)-1].Step == 0 {
		return from, to, fmt.Errorf("%s has no checkpoint after its first step: there is nothing to compare a replay with", run)
	}
	at := max(0, len(entries)-2) // index of the first checkpoint of the window
	if first != nil {
		steps := checkpoint.Steps(entries)
		at = slices.Index(steps, *first)
		if at == len(entries)-1 || at < 0 && *first > 0 {
			return from, to, fmt.Errorf("%s cannot be replayed from step %d: it has checkpoints of steps %v, of which one after it is needed, too (train.keep)", run, *first, steps)
		}
	}
	window := entries[max(0, at):min(len(entries), at+2)]
	for i, f := range []**checkpoint.File{&to, &from}[:len(window)] {
		opened, err := checkpoint.Open(window[len(window)-1-i].Path)
		if err != nil {
			return from, to, err
		}
		*f = opened
		if err := errors.Join(opened.Verify(), provenance.CheckOwner(run, opened.Step, opened.Meta)); err != nil {
			return from, to, err
		}
	}
	return from, to, nil
}

// prepareReplay creates a run directory with the state of the run at the first checkpoint, and
// returns the configuration to resume it with, which has the current paths of plugins, weights and
// data.
func prepareReplay(ctx context.Context, cfg *config.Config, run, again rundir.Dir, from *checkpoint.File, finder *plugin.Finder) (*config.Config, error) {
	made, err := provenance.Read(run)
	if err != nil {
		return nil, err
	}
	search := rundir.Search{Run: run.Name, Made: made.Directory}
	cfg, err = cfg.Changed(func(c *config.Config) error {
		t := &c.Train
		t.Out, t.EvalEvery, t.TrajectoryEvery = again.Name, 0, 0
		t.CheckpointEvery, t.CheckpointMinutes, c.Method.ParetoEvery, t.Samples = 0, 0, 0, nil
		if err := build.FindPlugins(c, c.Plugins(), search, finder); err != nil || !c.Model.Language() {
			return err
		}
		for _, dir := range []*string{&c.Init, &t.Distillation.Teacher} { // if not found, reading it will fail
			if *dir == "" || *dir == config.TeacherInitial {
				continue
			}
			place, err := search.Find(*dir, func(place string) error {
				_, err := os.Stat(place)
				return err
			})
			if err == nil {
				*dir = place
			}
		}
		train, places, err := build.FindTrain(c, search)
		if err != nil {
			return err
		}
		defer train.Close()
		validation, err := build.FindValidation(c, search)
		if err != nil {
			return err
		}
		defer validation.Close()
		c.Data.SetFiles(places)
		c.Data.Validation = validation.Path()
		if there, err := run.Tokenizer().Exists(); err == nil && there {
			c.Data.Tokenizer = run.Name
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	text, err := cfg.Encode()
	if err != nil {
		return nil, err
	}
	provenance, err := run.Provenance().ReadFile()
	if err != nil {
		return nil, err
	}
	if err := again.MkdirAll(); err != nil {
		return nil, err
	}
	err = errors.Join(atomicfile.WriteBytes(again.Config(), text), atomicfile.WriteBytes(again.Provenance(), provenance))
	if err == nil && from.Step > 0 {
		_, err = checkpoint.Save(ctx, again.Checkpoints(), from.State)
	}
	return cfg, err
}

// Difference describes a tensor or a metadata entry that differs between two checkpoints.
type Difference struct {
	Name string `json:"name"` // of a tensor or a metadata entry
	// Count is the number of the tensor's Of elements that differ. Both are 0 for a metadata entry,
	// and for a tensor that differs in shape or is in only one of the two.
	Count int `json:"count"`
	Of    int `json:"of"`
	// First is the index of the first element that differs, Largest the largest absolute
	// difference; nil unless the tensor is float32.
	First   []int           `json:"first,omitempty"`
	Largest *metrics.Number `json:"largest,omitempty"`
}

func (d Difference) String() string {
	if d.Count == 0 {
		return d.Name + " differs"
	}
	text := fmt.Sprintf("%s differs in %d of %d numbers, first at %v", d.Name, d.Count, d.Of, d.First)
	if d.Largest != nil {
		text += fmt.Sprintf(", by at most %g", float64(*d.Largest))
	}
	return text
}

// comparedMeta lists the metadata entries, beside progress, that the training steps determine.
var comparedMeta = []string{refreshesKey, failuresKey, movementMeta}

// compareStates lists the differences between two states of one step, tensors first. It
// reads one tensor of each at a time.
func compareStates(want, got checkpoint.State) ([]Difference, error) {
	list := []Difference{}
	tensors := map[string]safetensors.Tensor{}
	for _, t := range got.Tensors {
		tensors[t.Name] = t
	}
	for _, w := range want.Tensors {
		g, ok := tensors[w.Name]
		delete(tensors, w.Name)
		if !ok || g.DType != w.DType || !slices.Equal(g.Shape, w.Shape) {
			list = append(list, Difference{Name: w.Name})
			continue
		}
		d, err := compareTensors(w, g)
		if err != nil {
			return nil, err
		}
		if d.Count > 0 {
			list = append(list, d)
		}
	}
	for name := range tensors {
		list = append(list, Difference{Name: name})
	}
	var a, b provenance.Progress
	if err := want.Meta.Get(provenance.ProgressKey, &a); err != nil {
		return nil, err
	}
	if err := got.Meta.Get(provenance.ProgressKey, &b); err != nil {
		return nil, err
	}
	a.Seconds, b.Seconds = 0, 0
	if !reflect.DeepEqual(a, b) {
		list = append(list, Difference{Name: "progress"})
	}
	for _, key := range comparedMeta {
		if want.Meta[key] != got.Meta[key] {
			list = append(list, Difference{Name: key})
		}
	}
	return list, nil
}

func compareTensors(x, y safetensors.Tensor) (Difference, error) {
	a, errA := x.Bytes()
	b, errB := y.Bytes()
	size := max(1, x.DType.Bits()/8)
	d := Difference{Name: x.Name, Of: len(a) / size}
	if err := errors.Join(errA, errB); err != nil || bytes.Equal(a, b) {
		return d, err
	}
	largest := 0.0
	for i := range d.Of {
		v, w := a[i*size:(i+1)*size], b[i*size:(i+1)*size]
		if bytes.Equal(v, w) {
			continue
		}
		if d.Count == 0 {
			d.First = make([]int, len(x.Shape))
			at := i
			for axis, n := range slices.Backward(x.Shape) {
				d.First[axis], at = at%n, at/n
			}
		}
		d.Count++
		if x.DType == safetensors.F32 {
			largest = max(largest, math.Abs(float32At(v)-float32At(w))) // NaN prevails
		}
	}
	if x.DType == safetensors.F32 { // differences of integers (codes, counts) mean little
		d.Largest = metrics.Some(largest)
	}
	return d, nil
}

func float32At(data []byte) float64 {
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
}
