package plugin

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/internal/safetext"
)

// What a plugin may log and print, in all and in a second: a loop that prints must not
// fill the host's log.
const (
	loggedBytes = 1 << 20
	loggedBurst = 1000 // lines at once
	loggedRate  = 100  // lines a second, after that
	loggedLine  = 4096 // bytes of a line
)

// throttle passes the output of one plugin on to the host's log, up to the limits above
// and escaped by package safetext. Both streams share it.
type throttle struct {
	logger hclog.Logger
	now    func() time.Time

	mu           sync.Mutex
	bytes        int       // passed on
	lines        float64   // how many may be passed on at once
	last         time.Time // the time that lines is of; zero: before the first line
	droppedLines int
	droppedBytes int64
}

func newThrottle(logger hclog.Logger) *throttle {
	return &throttle{logger: logger, now: time.Now, lines: loggedBurst}
}

// log passes a line on, or counts it among those that are left out.
func (t *throttle) log(level hclog.Level, message string, args ...any) {
	size := len(message)
	for i, arg := range args {
		text := fmt.Sprint(arg) // of any JSON
		size += len(text)
		args[i] = safetext.Line(clip(text, loggedLine))
	}
	if !t.admit(size) {
		return
	}
	t.logger.Log(level, safetext.Line(clip(message, loggedLine)), args...)
}

// admit decides on a line of so many bytes.
func (t *throttle) admit(size int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if !t.last.IsZero() {
		t.lines = min(loggedBurst, t.lines+loggedRate*now.Sub(t.last).Seconds())
	}
	t.last = now
	if t.lines < 1 || t.bytes+size > loggedBytes {
		t.droppedLines++
		t.droppedBytes += int64(size)
		return false
	}
	t.lines--
	t.bytes += size
	return true
}

// close says once what was left out.
func (t *throttle) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.droppedLines > 0 {
		t.logger.Warn("printed too much: the rest was left out", "lines", t.droppedLines, "bytes", t.droppedBytes)
	}
}
