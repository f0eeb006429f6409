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
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/internal/safetext"
)

// maxLine is the length in bytes at which longer lines of a plugin's output are split.
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

// output logs the lines that a plugin prints to standard error and, after the handshake, to
// standard output. It keeps the last ones for error messages.
type output struct {
	log     hclog.Logger
	mu      sync.Mutex
	last    []string
	printed atomic.Int64 // lines
	panics  bool         // last begins with a panic and keeps its first lines, not the newest
}

const (
	loggedLength = 4096 // of a message or an argument in the log
	keptLines    = 12
	keptLength   = 400
)

// line logs a line, escaped by package safetext, and keeps it unless it is a log entry below level
// warn. After a panic it keeps the first lines, because Go programs print the reason first.
func (o *output) line(line string) {
	o.printed.Add(1)
	line = strings.TrimRight(line, "\r")
	level, message, args := parseLog(line)
	escaped := make([]any, len(args))
	for i, arg := range args {
		escaped[i] = safetext.Line(safetext.Clip(fmt.Sprint(arg), loggedLength))
	}
	o.log.Log(level, safetext.Line(safetext.Clip(message, loggedLength)), escaped...)
	if args != nil {
		if level < hclog.Warn {
			return
		}
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
	o.last = append(o.last, safetext.Clip(line, keptLength))
}

func (o *output) lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.last)
}

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
