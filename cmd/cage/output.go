package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk"
)

// output is the output of a command: value is printed as JSON with --json, and text is called
// otherwise. Write errors need not be handled, because [stdStream] records them.
type output struct {
	value any
	text  func(w io.Writer)
}

func tableOutput(value any, rows [][]string) *output {
	return &output{value, func(w io.Writer) { table(w, rows) }}
}

func textOutput(value any, format string, args ...any) *output {
	return &output{value, func(w io.Writer) { fmt.Fprintf(w, format, args...) }}
}

// withOutput adds the flag --json to a command. The command then prints the output that run
// returns, even if run also returns an error.
func withOutput(
	cmd *cobra.Command, run func(cmd *cobra.Command, args []string) (*output, error),
) *cobra.Command {
	cmd.Flags().Bool("json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a, err := run(cmd, args)
		switch {
		case a == nil:
		case wantsJSON(cmd):
			text, jsonErr := json.MarshalIndent(a.value, "", "  ")
			if jsonErr == nil {
				_, jsonErr = fmt.Fprintln(cmd.OutOrStdout(), safetext.JSON(string(text)))
			}
			err = errors.Join(jsonErr, err)
		default:
			a.text(cmd.OutOrStdout())
		}
		return err
	}
	return cmd
}

func wantsJSON(cmd *cobra.Command) bool {
	asJSON, _ := cmd.Flags().GetBool("json")
	return asJSON
}

// table escapes the rows and writes them in aligned columns. The first row is the heading.
func table(w io.Writer, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := lists.Map(row, safetext.Line)
		fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	t.Flush()
}

func throttle(interval time.Duration) (due func() bool) {
	next := time.Now().Add(interval)
	return func() bool {
		if time.Now().Before(next) {
			return false
		}
		next = time.Now().Add(interval)
		return true
	}
}

// newLogger returns a logger that writes to the command's standard error. It escapes messages,
// which may quote untrusted text.
func newLogger(cmd *cobra.Command) hclog.Logger { return newLoggerOn(cmd, cmd.ErrOrStderr()) }

func newLoggerOn(cmd *cobra.Command, out io.Writer) hclog.Logger {
	name, _ := cmd.Flags().GetString("log-level") // validated by prepare
	return hclog.New(&hclog.LoggerOptions{
		Name: "cage", Level: hclog.LevelFromString(name),
		Output: safetext.NewWriter(out), TimeFormat: "15:04:05",
	})
}

// stdStream is the standard output or standard error of this process. All text except progress
// displays is written through it, escaped as described in package safetext.
//
// Writing to a closed pipe is not an error, because the reader wants no more output. This matters
// only for commands that outlive their readers (see [surviveSIGPIPE]); other commands are ended by
// SIGPIPE.
type stdStream struct {
	file *os.File
	mu   sync.Mutex
	err  error // the first write error
}

// Write implements io.Writer.
func (o *stdStream) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := safetext.NewWriter(o.file).Write(p)
	if errors.Is(err, syscall.EPIPE) {
		return len(p), nil
	}
	o.err = cmp.Or(o.err, err)
	return n, err
}

// firstError returns the first write error. It is reported when the command ends, because most
// callers ignore write errors.
func (o *stdStream) firstError() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// unescaped returns the file of a stdStream, for displays that move the cursor. It returns any
// other writer unchanged.
func unescaped(w io.Writer) io.Writer {
	if o, ok := w.(*stdStream); ok {
		return o.file
	}
	return w
}

// surviveSIGPIPE lets a command continue after the reader of its output has exited, such as head,
// or tee after Ctrl-C. It is for commands whose work matters more than their output. SIGPIPE is
// caught, so that writing to a closed pipe returns an error; it is not ignored, because child
// processes such as plugins would then ignore it, too.
func surviveSIGPIPE(cmd *cobra.Command) *cobra.Command {
	cmd.PreRun = func(*cobra.Command, []string) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	return cmd
}

func addKeys(cmd *cobra.Command, keys []schema.Key) {
	flags := cmd.Flags()
	for _, k := range keys {
		if k.Default != nil {
			k.Set(k.Default)
		}
		switch to := k.To.(type) {
		case *int:
			flags.IntVar(to, k.FlagName(), *to, k.Doc)
		case *int64:
			flags.Int64Var(to, k.FlagName(), *to, k.Doc)
		case *float64:
			flags.Float64Var(to, k.FlagName(), *to, k.Doc)
		case *bool:
			flags.BoolVar(to, k.FlagName(), *to, k.Doc)
		case *string:
			flags.StringVar(to, k.FlagName(), *to, k.Doc)
		case *[]string:
			flags.StringSliceVar(to, k.FlagName(), *to, k.Doc)
		case *[]int:
			flags.IntSliceVar(to, k.FlagName(), *to, k.Doc)
		default:
			panic(fmt.Sprintf("unsupported flag type %T", to))
		}
	}
}

// checkKeys returns an error for the first flag whose value is out of range. Defaults are always
// valid.
func checkKeys(cmd *cobra.Command, keys []schema.Key) error {
	for _, k := range keys {
		f := cmd.Flags().Lookup(k.FlagName())
		if _, ok := k.Accept(k.Value()); !ok && f.Changed && f.Value.String() != f.DefValue {
			value := f.Value.String()
			if k.Type() == schema.Text {
				value = strconv.Quote(value)
			}
			return usagef("--%s %s: want %s", k.FlagName(), value, k.Wants())
		}
	}
	return nil
}

type quantizerFlags struct {
	plugin      string
	sets        []string
	weightsOnly bool
	flags       *pflag.FlagSet
}

func (f *quantizerFlags) add(flags *pflag.FlagSet, usage string) {
	f.flags = flags
	flags.StringVar(&f.plugin, "quantizer", "", usage)
	flags.StringArrayVar(&f.sets, "set", nil,
		"set a parameter of the quantizer: `KEY=VALUE` (repeatable)")
}

func (f *quantizerFlags) addReplacement(flags *pflag.FlagSet) {
	f.add(flags, "quantize weights and activations with the plugin `NAME`, or a path, instead of "+
		"the run's quantizers; none: full precision")
	flags.BoolVar(&f.weightsOnly, "weights-only", false,
		"with --quantizer: leave activations in full precision")
}

func (f *quantizerFlags) params() (map[string]any, error) {
	if f.plugin == "" && f.flags.Changed("quantizer") { // such as an unset variable
		return nil, usagef("--quantizer is empty: want the name of a plugin, or leave it out")
	}
	if f.plugin == "" && len(f.sets) > 0 {
		return nil, usagef("--set sets parameters of a quantizer: want --quantizer NAME with it")
	}
	for _, set := range f.sets {
		if _, value, _ := strings.Cut(set, "="); strings.TrimSpace(value) == "" {
			return nil, usagef("--set %q: want KEY=VALUE", set)
		}
	}
	return pluginSettings(f.sets, sdk.Description{})
}

// replacement returns the quantizer that replaces the run's own, or nil if there is no replacement.
func (f *quantizerFlags) replacement() (*trained.Quantizer, error) {
	params, err := f.params()
	switch {
	case err != nil:
		return nil, err
	case f.plugin == "" && f.weightsOnly:
		return nil, usagef("--weights-only needs a quantizer: want --quantizer NAME with it")
	case f.plugin == "":
		return nil, nil
	case f.plugin == trained.NoQuantizer && (f.weightsOnly || len(params) > 0):
		return nil, usagef("--quantizer none cannot be combined with --set or --weights-only")
	}
	return &trained.Quantizer{Plugin: f.plugin, Params: params, WeightsOnly: f.weightsOnly}, nil
}
