package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// fenced matches a fenced block of a page, with the comment before it: "not run: REASON", or "file:
// NAME" for a block that a reader writes to a file.
var fenced = regexp.MustCompile(
	"(?ms)^(?:<!-- (not run|file): (.*?) -->\n)?```(sh|toml|json|go|python)\n(.*?)^```$")

// smaller shortens the commands of the guide to seconds: trainings stop early, a tree of few files
// replaces Go's source, and go test tries only default settings and skips go vet, which would check
// the SDK again in each new directory. TestWritingConforms tries all settings, and
// TestModuleOfAPublishedVersion runs go vet on a new plugin.
const smaller = `set -euo pipefail
cage() {
	case "$1" in
	train) shift; command cage train "$@" --stop-after 4 --set train.eval_every=2 --set train.batch=2 ;;
	*) command cage "$@" ;;
	esac
}
go() {
	case "$*" in
	"env GOROOT") echo "$SMALL" ;;
	"test "*) shift; command go test -vet=off -short "$@" ;;
	*) command go "$@" ;;
	esac
}
`

// TestGuide runs the shell blocks of each page of the guide from top to bottom, except those that
// the page marks as not run.
func TestGuide(t *testing.T) {
	testlevel.Long(t, "it trains")
	binary := testrun.Cage(t)
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	small := filepath.Join(t.TempDir(), "go")
	source, err := os.ReadFile(filepath.Join(repo, "host/train/loop.go"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(small, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		create(t, filepath.Join(small, "src", fmt.Sprintf("file%d.go", i)), string(source))
	}
	cache := strings.TrimSpace(goOut(t, "env", "GOCACHE")) // otherwise it would be in XDG_CACHE_HOME
	for _, page := range guide(t) {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			dir, script := t.TempDir(), smaller
			for _, name := range []string{"examples", "plugins", "scripts", "sdk", "go.mod", "go.sum"} {
				if err := os.Symlink(filepath.Join(repo, name), filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range fenced.FindAllStringSubmatch(read(t, page), -1) {
				mark, value, language, text := m[1], m[2], m[3], m[4]
				switch {
				case mark == "not run":
					t.Logf("not run, %s:\n%s", value, text)
				case mark == "file":
					script += fmt.Sprintf(
						"mkdir -p \"$(dirname %s)\"\ncat >%[1]s <<'END OF FILE'\n%sEND OF FILE\n", value, text)
				case language == "sh":
					script += text
				}
			}
			if script == smaller {
				t.Skip("it has no commands that can be run")
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"),
				"SMALL="+small,
				"CAGE_PLUGIN_PATH="+pluginsDir(t), "XDG_CACHE_HOME="+t.TempDir(), "GOCACHE="+cache)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s\n%s", err, script, out)
			}
		})
	}
}

// TestCommandsOfTheGuide checks that each command of cage on the pages of the guide and in the
// README exists, with its flags.
func TestCommandsOfTheGuide(t *testing.T) {
	pages := append(guide(t), "../../README.md")
	found := 0
	for _, page := range pages {
		for _, words := range commands(read(t, page)) {
			found++
			if err := accepted(words); err != nil {
				t.Errorf("%s: cage %s: %v", page, strings.Join(words, " "), err)
			}
		}
	}
	if found < len(pages) {
		t.Errorf("only %d commands were found", found)
	}
}

func guide(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/guide/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("found %v: %v", pages, err)
	}
	return pages
}

var (
	commandLine = regexp.MustCompile(`(?m)^(?:    )?(?:bin/)?cage ((?:.*\\\n)*.*)$`)
	word        = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
)

// commands returns the arguments of each command line of cage in code blocks of a page.
func commands(text string) (list [][]string) {
	for _, m := range commandLine.FindAllStringSubmatch(text, -1) {
		line, _, _ := strings.Cut(strings.ReplaceAll(m[1], "\\\n", " "), " #")
		line, _, _ = strings.Cut(line, " | ")
		words := word.FindAllString(line, -1)
		if i := slices.IndexFunc(words,
			func(w string) bool { return w == ">" || w == "&&" || w == "&" }); i >= 0 {
			words = words[:i]
		}
		list = append(list, words)
	}
	return list
}

// accepted returns an error if the command or one of its flags does not exist.
func accepted(words []string) error {
	command, rest, err := newRoot().Find(words)
	if err != nil {
		return err
	}
	if command.HasSubCommands() && !command.Runnable() {
		return fmt.Errorf("%s is not a command", command.CommandPath())
	}
	return flagsExist(command, rest)
}

func flagsExist(command *cobra.Command, words []string) error {
	for _, w := range words {
		name, isFlag := strings.CutPrefix(w, "--")
		if name, _, _ = strings.Cut(name, "="); !isFlag || name == "" || name == "help" {
			continue
		}
		if command.Flags().Lookup(name) == nil && command.InheritedFlags().Lookup(name) == nil {
			return fmt.Errorf("it has no flag --%s", name)
		}
	}
	return nil
}
