package plugin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/internal/safetext"
)

// maxLine is the length at which lines of a plugin's output are split.
const maxLine = 64 << 10

func eachLine(r io.Reader, f func(line string)) {
	reader := bufio.NewReaderSize(r, maxLine)
	for {
		line, _, err := reader.ReadLine()
		if err != nil {
			return
		}
		f(strings.ToValidUTF8(string(line), "?"))
	}
}

// output is what a plugin prints, on standard error and on standard output after the handshake: it
// goes to the host's log, and the last lines are kept for error messages.
//
// go-plugin's own parser of these lines panics on some that are JSON but not a log
// entry, so it never sees them.
type output struct {
	log    *throttle
	mu     sync.Mutex
	last   []string
	panics bool // last begins with a panic and is kept as it is
}

// Bounds on what is kept.
const (
	keptLines  = 12
	keptLength = 400
)

func (o *output) line(line string) {
	line = strings.TrimRight(line, "\r")
	level, message, args := parseLog(line)
	o.log.log(level, message, slices.Clone(args)...)
	if level < hclog.Warn && args != nil {
		return // routine entries of a plugin's log explain no failure
	}
	o.keep(line, message, args)
}

// keep remembers a line. A Go program that panics prints the reason first and may
// print thousands of lines after it.
func (o *output) keep(line, message string, args []any) {
	if args != nil {
		line = message
		for i := 0; i+1 < len(args); i += 2 {
			line += fmt.Sprintf(" %v=%v", args[i], args[i+1])
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.panics && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")) {
		o.panics, o.last = true, nil
	}
	if len(o.last) == keptLines {
		if o.panics {
			return
		}
		o.last = o.last[1:]
	}
	o.last = append(o.last, clip(line, keptLength))
}

func (o *output) lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.last)
}

// parseLog reads an entry of hclog's JSON form; args is nil when the line is
// something else, which is logged as it stands.
func parseLog(line string) (level hclog.Level, message string, args []any) {
	plain := func() (hclog.Level, string, []any) { return hclog.Info, line, nil }
	if !strings.HasPrefix(line, "{") {
		return plain()
	}
	var entry map[string]any
	if err := json.Unmarshal([]byte(line), &entry); err != nil {
		return plain()
	}
	message, isText := entry["@message"].(string)
	name, _ := entry["@level"].(string)
	level = hclog.LevelFromString(name)
	if !isText || level == hclog.NoLevel {
		return plain()
	}
	args = []any{}
	for _, key := range slices.Sorted(maps.Keys(entry)) {
		if !strings.HasPrefix(key, "@") {
			args = append(args, key, entry[key])
		}
	}
	return level, message, args
}

// What a plugin may log and print: a loop that prints must not fill the host's log.
const (
	loggedBytes = 1 << 20 // in all, with loggedEntry for each line
	loggedEntry = 64
	loggedLine  = 4096 // bytes of a line
)

// throttle passes the output of one plugin on to the host's log, up to the limits above
// and escaped by package safetext. Both streams share it.
type throttle struct {
	logger hclog.Logger

	mu           sync.Mutex
	bytes        int // passed on
	droppedLines int
	droppedBytes int64
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

func (t *throttle) admit(size int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bytes+size+loggedEntry > loggedBytes {
		t.droppedLines++
		t.droppedBytes += int64(size)
		return false
	}
	t.bytes += size + loggedEntry
	return true
}

func (t *throttle) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.droppedLines > 0 {
		t.logger.Warn("printed too much: the rest was left out", "lines", t.droppedLines, "bytes", t.droppedBytes)
	}
}
