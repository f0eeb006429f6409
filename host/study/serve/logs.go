package serve

import (
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/jsonlines"
)

// Limits of what is kept in memory, whatever the files hold.
const (
	maxLogs     = maxCurves + 4    // runs whose curves are kept: those of a chart, and some
	maxInUse    = 4 * maxCurves    // and as many while pages ask for them: of several windows
	inUse       = 10 * time.Second // since the last question: pages ask every two seconds
	maxNames    = 64               // numbers of a record
	stretches   = 600              // of a curve: more than a chart has pixels for
	bytesAtOnce = 24 << 20         // read of a run for one request, a part of a second
)

// logs are the curves of the runs that were looked at last.
type logs struct {
	mu    sync.Mutex
	order []string // from the one that was used longest ago
	byRun map[string]*runLog
	now   func() time.Time
}

func newLogs() *logs { return &logs{byRun: map[string]*runLog{}, now: time.Now} }

func (l *logs) get(dir string) *runLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	log := l.byRun[dir]
	if log == nil {
		log = newRunLog(dir)
		l.byRun[dir] = log
	} else {
		l.order = slices.DeleteFunc(l.order, func(name string) bool { return name == dir })
	}
	l.order, log.used = append(l.order, dir), now
	for n := len(l.order); n > maxInUse || n > maxLogs && now.Sub(l.byRun[l.order[0]].used) > inUse; n = len(l.order) {
		delete(l.byRun, l.order[0])
		l.order = l.order[1:]
	}
	return log
}

// read reads what has been recorded since the last call, or a part of it: then there is more.
func (l *logs) read(dir string) (log *runLog, more bool, err error) {
	log = l.get(dir)
	log.mu.Lock()
	defer log.mu.Unlock()
	more, err = log.follower.Next(bytesAtOnce)
	return log, more, err
}

// runLog is what the records of a run say, as far as they are read.
type runLog struct {
	used     time.Time // guarded by the mutex of logs
	mu       sync.Mutex
	follower jsonlines.Follower
	texts    writtenTexts
	curves   map[string]*curve
	reader   metrics.NumberReader
	numbers  []measurement // of the line that is read
}

// measurement is a value on its way to where it is kept.
type measurement struct {
	to *curve
	x  float64
}

func newRunLog(dir string) *runLog {
	log := &runLog{}
	log.texts.follower = jsonlines.Follower{Path: rundir.At(dir).Samples(), Restart: func() { log.texts.newest = nil }, Line: log.texts.line}
	log.follower = jsonlines.Follower{Path: rundir.At(dir).Metrics(), Restart: log.restart, Line: log.line}
	log.restart()
	return log
}

func (l *runLog) restart() { l.curves = map[string]*curve{} }

// line adds a record. What is no record is passed over: a page shows what can be read.
func (l *runLog) line(text []byte) {
	step := -1
	l.numbers = l.numbers[:0]
	ok := l.reader.Each(text, func(weight, name []byte, x float64) {
		switch {
		case len(weight) > 0: // of a single tensor
		case string(name) == "step":
			step = int(x)
		default:
			if c := l.curve(name); c != nil {
				l.numbers = append(l.numbers, measurement{c, x})
			}
		}
	})
	if !ok || step < 0 {
		return
	}
	for _, n := range l.numbers {
		n.to.Add(step, n.x)
	}
}

// curve is that of a number; nil where there are too many.
func (l *runLog) curve(name []byte) *curve {
	c := l.curves[string(name)]
	if c == nil && len(l.curves) < maxNames {
		c = newCurve(stretches)
		l.curves[string(name)] = c
	}
	return c
}

func (l *runLog) has(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.curves[name] != nil
}

// points are those of a number's curve, with the smoothed value of each if there are enough.
func (l *runLog) points(name string) (points []point, smoothed []float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.curves[name]; c != nil {
		return c.Points(), c.Smoothed()
	}
	return nil, nil
}

// Limits of what is kept of the texts that a run has written.
const (
	maxSamples = 20   // evaluations, the newest
	maxTexts   = 16   // of an evaluation
	maxText    = 4096 // bytes of one
)

// writtenTexts follows the samples.jsonl of a run.
type writtenTexts struct {
	follower jsonlines.Follower
	newest   []metrics.Sample
}

// line keeps the texts of an evaluation. What is none is passed over.
func (w *writtenTexts) line(text []byte) {
	s, err := metrics.ParseSample(text)
	if err != nil || len(s.Texts) == 0 {
		return
	}
	s.Texts = slices.Clone(s.Texts[:min(len(s.Texts), maxTexts)])
	for i := range s.Texts {
		s.Texts[i].Prompt, s.Texts[i].Text = shorten(s.Texts[i].Prompt), shorten(s.Texts[i].Text)
	}
	w.newest = append(w.newest, s)
	if len(w.newest) > maxSamples {
		w.newest = slices.Delete(w.newest, 0, 1)
	}
}

// shorten returns the beginning of a long text, with a sign of that.
func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + " …"
}

// samplesView has the newest texts of a run, the last evaluation first.
type samplesView struct {
	Samples []metrics.Sample
	Wrong   string // why they cannot be read
}

// samplesOf reads what has been written since the last call, or a part of it.
func (s *Server) samplesOf(run *rundir.Run) (v samplesView) {
	log := s.logs.get(run.Dir)
	log.mu.Lock()
	defer log.mu.Unlock()
	if _, err := log.texts.follower.Next(bytesAtOnce); err != nil {
		v.Wrong = err.Error()
	}
	v.Samples = slices.Clone(log.texts.newest)
	slices.Reverse(v.Samples)
	return v
}
