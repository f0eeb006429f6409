package serve

import (
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/jsonlines"
	"github.com/cage-qat/cage/internal/safetext"
)

// These limits bound the memory that is used, whatever the files contain.
const (
	maxLogs     = 4 * maxCurves // runs whose curves are kept
	maxNames    = 64            // metrics of a run
	maxPoints   = 1200          // points of a curve: more than the width of a chart in pixels
	maxSamples  = 20            // newest evaluations whose texts are kept
	maxTexts    = 16            // of an evaluation
	maxText     = 4096          // bytes of one
	bytesAtOnce = 24 << 20      // of a run's files, read for one request; takes a fraction of a second
)

// logs is a cache of the curves of the runs that were requested last.
type logs struct {
	mu    sync.Mutex
	order []string // least recently used first
	byRun map[string]*runLog
}

func (l *logs) get(dir string) *runLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.byRun[dir]
	if log == nil {
		log = newRunLog(dir)
		if l.byRun == nil {
			l.byRun = map[string]*runLog{}
		}
		l.byRun[dir] = log
	}
	l.order = append(slices.DeleteFunc(l.order, func(name string) bool { return name == dir }), dir)
	if len(l.order) > maxLogs {
		delete(l.byRun, l.order[0])
		l.order = l.order[1:]
	}
	return log
}

// runLog holds the records of a run and its newest texts, as far as they have been read.
type runLog struct {
	mu       sync.Mutex
	follower jsonlines.Follower
	curves   map[string]*curve

	texts   jsonlines.Follower
	samples []metrics.Sample
}

func newRunLog(dir string) *runLog {
	l := &runLog{curves: map[string]*curve{}}
	l.follower = jsonlines.Follower{
		Path: rundir.At(dir).Metrics(), Line: l.line,
		Restart: func() { l.curves = map[string]*curve{} },
	}
	l.texts = jsonlines.Follower{
		Path: rundir.At(dir).Samples(), Restart: func() { l.samples = nil },
		Line: func(text []byte) {
			if s, err := metrics.ParseSample(text); err == nil && len(s.Texts) > 0 {
				s.Texts = slices.Clone(s.Texts[:min(len(s.Texts), maxTexts)])
				for i := range s.Texts {
					t := &s.Texts[i]
					t.Prompt, t.Text = safetext.Clip(t.Prompt, maxText), safetext.Clip(t.Text, maxText)
				}
				l.samples = append(l.samples, s)
				l.samples = l.samples[max(0, len(l.samples)-maxSamples):]
			}
		},
	}
	return l
}

// line adds a record. Invalid lines are skipped, so that a page shows everything that can be read.
func (l *runLog) line(text []byte) {
	record := metrics.Numbers(text)
	step, ok := record["step"]
	if !ok || step < 0 {
		return
	}
	delete(record, "step")
	for _, name := range slices.Sorted(maps.Keys(record)) {
		c := l.curves[name]
		if c == nil && len(l.curves) < maxNames {
			c = &curve{}
			l.curves[name] = c
		}
		if c != nil {
			c.add(int(step), record[name])
		}
	}
}

// samplesView holds the newest texts of a run, those of the last evaluation first.
type samplesView struct {
	Samples []metrics.Sample
	Wrong   string // the error of reading them
}

func (s *Server) samplesOf(run *rundir.Run) (v samplesView) {
	log := s.logs.get(run.Dir)
	log.mu.Lock()
	defer log.mu.Unlock()
	if _, err := log.texts.Next(bytesAtOnce); err != nil {
		v.Wrong = err.Error()
	}
	v.Samples = slices.Clone(log.samples)
	slices.Reverse(v.Samples)
	return v
}

// curve stores a curve of any length in bounded memory: of each stretch of consecutive points, the
// lowest and the highest are kept, so that no peak is lost. All stretches have the same length.
type curve struct {
	kept    []point
	stretch int     // points of a stretch; 0 and 1: all points are kept
	tail    []point // of the stretch that is not complete
	last    point
}

// point is a point of a curve. Values that were not finite become NaN, which breaks the curve.
type point struct {
	step  int
	value float64
	sum   figure.Sum // of all finite values so far, also of points that are not kept
	count int        // number of these values
}

func (p point) y() float64 { return p.value }

// add appends the value at a step. If a step has several values, the first one counts.
func (c *curve) add(step int, y float64) {
	p := c.last
	if len(c.kept)+len(c.tail) > 0 && step <= p.step {
		return
	}
	if p.step, p.value = step, math.NaN(); !math.IsInf(y, 0) && !math.IsNaN(y) {
		p.value, p.sum, p.count = y, p.sum.Plus(y), p.count+1
	}
	c.last, c.tail = p, append(c.tail, p)
	if len(c.tail) < c.stretch {
		return
	}
	c.kept, c.tail = append(c.kept, figure.Extremes(c.tail, point.y)...), c.tail[:0]
	if n := len(c.kept); n > 2*maxPoints { // of two stretches with two points each, two points
		c.kept, c.stretch = figure.Thin(c.kept, (n+1)/2, point.y), max(4, 2*c.stretch)
	}
}

// points returns the points to draw, the last one among them.
func (c *curve) points() []point {
	all := slices.Concat(c.kept, c.tail)
	if n := len(all); n > 0 && all[n-1].step < c.last.step {
		all = append(all, c.last)
	}
	return all
}

// smoothed returns, for each of points, the mean of all values around it, NaN where the curve
// breaks, or nil for a short curve. The window is centred; it narrows at the beginning, where a
// loss falls too steeply to be averaged, and is truncated at the end.
func (c *curve) smoothed(points []point) []float64 {
	if c.last.count < figure.SmoothFrom {
		return nil
	}
	reach := max(1, int(figure.SmoothShare*float64(c.last.count)/2))
	out := make([]float64, len(points))
	from, to := 0, 0 // the window is between the points before from and at to
	for i, p := range points {
		r := min(reach, max(0, p.count-1))
		for points[from].count < p.count-r {
			from++
		}
		for to < len(points)-1 && points[to].count < p.count+r {
			to++
		}
		var before point
		if from > 0 {
			before = points[from-1]
		}
		out[i] = points[to].sum.Minus(before.sum) / float64(points[to].count-before.count)
		if math.IsNaN(p.value) {
			out[i] = math.NaN()
		}
	}
	return out
}
