package sdk

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/sdk/internal/wire"
)

// newLogger returns a logger that writes JSON lines in hclog's format, which the host reads. It
// also makes log/slog, and with it package log, write such lines.
func newLogger(w io.Writer) hclog.Logger {
	level := hclog.LevelFromString(os.Getenv(wire.LogKey))
	if level == hclog.NoLevel {
		level = hclog.Info
	}
	// hclog counts debug, info, warn and error as 2, 3, 4, 5; slog as -4, 0, 4, 8.
	slogLevel := slog.Level(4 * (int(level) - int(hclog.Info)))
	options := &slog.HandlerOptions{Level: slogLevel, ReplaceAttr: asHCLog}
	slog.SetDefault(slog.New(slog.NewJSONHandler(w, options)))
	return hclog.New(&hclog.LoggerOptions{Output: w, Level: level, JSONFormat: true})
}

// asHCLog renames the attributes of a slog record to those of hclog. NaN and infinities, which JSON
// does not have, are written as strings.
func asHCLog(groups []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case slog.Level:
		if len(groups) == 0 && a.Key == slog.LevelKey {
			name := "trace"
			if v >= slog.LevelDebug {
				name, _, _ = strings.Cut(strings.ToLower(v.String()), "+")
			}
			return slog.String("@level", name)
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return slog.String(a.Key, fmt.Sprint(v))
		}
	}
	if len(groups) == 0 && (a.Key == slog.MessageKey || a.Key == slog.TimeKey) {
		a.Key = map[string]string{slog.MessageKey: "@message", slog.TimeKey: "@timestamp"}[a.Key]
	}
	return a
}
