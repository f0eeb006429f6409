package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/internal/schema"
)

type usageError struct{ error }

// group completes a command that only has subcommands. Without arguments it prints its help; any argument is an unknown
// command.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subcommands...)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(cmd, args[0])
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// unknownCommand is the error about an unknown subcommand, with the one that was probably meant.
func unknownCommand(cmd *cobra.Command, name string) error {
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	path := strings.TrimPrefix(cmd.CommandPath()+" "+name, cmd.Root().Name()+" ")
	err := fmt.Errorf("unknown command %q", path)
	if near := schema.Nearest(name, known); near != "" {
		err = fmt.Errorf("%w; did you mean %s?", err, near)
	}
	return usageError{err}
}

// flagError turns an error of the flags' library into one that says what a flag wants, or which flag was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if near := nearestFlag(unknown.GetSpecifiedName(), known); near != "" {
			err = fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := bad.GetFlag()
		err = fmt.Errorf("--%s %q: not a valid %s", f.Name, bad.GetValue(), f.Value.Type())
		if f.Value.Type() == "stringToString" {
			err = fmt.Errorf("--%s %q: want NAME=VALUE, or several with commas between them", f.Name, bad.GetValue())
		}
	}
	return usageError{err}
}

// nearestFlag is the flag that was probably meant. Words of one or two letters must be
// equal: top-p is not a typing error for top-k.
func nearestFlag(name string, known []string) string {
	words := strings.Split(name, "-")
	return schema.Nearest(name, slices.DeleteFunc(known, func(k string) bool {
		others := strings.Split(k, "-")
		if len(others) != len(words) {
			return false
		}
		for i, w := range words {
			if len(w) <= 2 && len(others[i]) == len(w) && w != others[i] {
				return true
			}
		}
		return false
	}))
}

// newHelp is cobra's help command, except that a command that does not exist is a
// mistake.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Describe a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = unknownCommand(about, rest[0])
			}
			if err != nil {
				return err
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

func exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == n:
			return nil
		case len(args) == 0:
			return usageError{fmt.Errorf("expected %s", what)}
		}
		return usageError{fmt.Errorf("expected %s, got %d arguments: %q", what, len(args), args)}
	}
}

func atLeastOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError{fmt.Errorf("expected at least one %s", what)}
		}
		return nil
	}
}

func atMostOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usageError{fmt.Errorf("expected at most one %s, got %d arguments", what, len(args))}
		}
		return nil
	}
}

// notNegative accepts what checkArgs accepts, unless one of the named flags is negative.
func notNegative(checkArgs cobra.PositionalArgs, flags ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := checkArgs(cmd, args); err != nil {
			return err
		}
		for _, name := range flags {
			if f := cmd.Flags().Lookup(name); strings.HasPrefix(f.Value.String(), "-") {
				return usageError{fmt.Errorf("--%s %s: want 0 or more", name, f.Value)}
			}
		}
		return nil
	}
}
