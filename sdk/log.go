package sdk

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/sdk/internal/wire"
)

// newLogger returns a logger that writes lines in the form that the host understands. It
// also makes log/slog, and with it package log, write such lines, so that an author
// reaches the host's log with the standard library alone.
func newLogger(w io.Writer) hclog.Logger {
	level := cmp.Or(hclog.LevelFromString(os.Getenv(wire.LogKey)), hclog.Info) // hclog.NoLevel is 0
	logger := hclog.New(&hclog.LoggerOptions{Output: w, Level: level, JSONFormat: true})
	slog.SetDefault(slog.New(&slogHandler{logger: logger}))
	return logger
}

// slogHandler passes records of log/slog on to an hclog logger.
type slogHandler struct {
	logger hclog.Logger
	prefix string // the open groups
}

func (h *slogHandler) Enabled(_ context.Context, level slog.Level) bool {
	return hclogLevel(level) >= h.logger.GetLevel()
}

func (h *slogHandler) Handle(_ context.Context, r slog.Record) error {
	var args []any
	r.Attrs(func(a slog.Attr) bool {
		args = h.appendAttr(args, h.prefix, a)
		return true
	})
	h.logger.Log(hclogLevel(r.Level), r.Message, args...)
	return nil
}

func (h *slogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var args []any
	for _, a := range attrs {
		args = h.appendAttr(args, h.prefix, a)
	}
	return &slogHandler{h.logger.With(args...), h.prefix}
}

func (h *slogHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &slogHandler{h.logger, h.prefix + name + "."}
}

// appendAttr flattens groups into dotted keys.
func (h *slogHandler) appendAttr(args []any, prefix string, a slog.Attr) []any {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		if a.Key == "" {
			return args
		}
		return append(args, prefix+a.Key, printable(v.Any()))
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, inner := range v.Group() {
		args = h.appendAttr(args, prefix, inner)
	}
	return args
}

// printable is v if a line of JSON can hold it, otherwise its text: hclog would lose the whole
// entry over a NaN.
func printable(v any) any {
	if _, isError := v.(error); isError {
		return v // hclog prints it
	}
	if _, err := json.Marshal(v); err != nil {
		return fmt.Sprint(v)
	}
	return v
}

func hclogLevel(l slog.Level) hclog.Level {
	switch {
	case l < slog.LevelDebug:
		return hclog.Trace
	case l < slog.LevelInfo:
		return hclog.Debug
	case l < slog.LevelWarn:
		return hclog.Info
	case l < slog.LevelError:
		return hclog.Warn
	}
	return hclog.Error
}
