package serve

import (
	"net/http"
	"slices"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/jsonlines"
)

// Limits of what is kept of the texts that a run has written.
const (
	mostSamples = 20   // evaluations, the newest
	mostTexts   = 16   // of an evaluation
	longestText = 4096 // bytes of one
)

// writtenTexts follows the samples.jsonl of a run.
type writtenTexts struct {
	follower jsonlines.Follower
	newest   []metrics.Sample
}

func newWrittenTexts(dir string) *writtenTexts {
	w := &writtenTexts{}
	w.follower = jsonlines.Follower{Path: rundir.At(dir).Samples(), Restart: func() { w.newest = nil }, Line: w.line}
	return w
}

// line keeps the texts of an evaluation. What is none is passed over.
func (w *writtenTexts) line(text []byte) {
	s, err := metrics.ParseSample(text)
	if err != nil || len(s.Texts) == 0 {
		return
	}
	s.Texts = slices.Clone(s.Texts[:min(len(s.Texts), mostTexts)])
	for i := range s.Texts {
		s.Texts[i].Prompt, s.Texts[i].Text = shortened(s.Texts[i].Prompt), shortened(s.Texts[i].Text)
	}
	w.newest = append(w.newest, s)
	if len(w.newest) > mostSamples {
		w.newest = slices.Delete(w.newest, 0, 1)
	}
}

// shortened is the beginning of a long text, with a sign of that.
func shortened(text string) string {
	if len(text) <= longestText {
		return text
	}
	end := longestText
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

func (s *Server) samples(w http.ResponseWriter, r *http.Request) error {
	run, err := s.one(r)
	if err != nil {
		return err
	}
	return show(w, r, "samples", s.samplesOf(run))
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
