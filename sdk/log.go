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

// asHCLog renames the attributes of a slog record to those of hclog.
func asHCLog(groups []string, a slog.Attr) slog.Attr {
	if x, ok := a.Value.Any().(float64); ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
		return slog.String(a.Key, fmt.Sprint(x)) // JSON has neither
	}
	level, isLevel := a.Value.Any().(slog.Level)
	switch {
	case len(groups) > 0:
	case a.Key == slog.LevelKey && isLevel:
		name := "trace"
		if level >= slog.LevelDebug {
			name, _, _ = strings.Cut(strings.ToLower(level.String()), "+")
		}
		return slog.String("@level", name)
	case a.Key == slog.MessageKey:
		a.Key = "@message"
	case a.Key == slog.TimeKey:
		a.Key = "@timestamp"
	}
	return a
}
