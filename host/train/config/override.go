package config

import (
	"fmt"
	"strings"
)

// override puts the settings of the command line in the place of the file's,
// the later over the earlier. The error lists all that are malformed.
func (d *decoder) override(overrides []string) error {
	var errs Errors
	for _, text := range overrides {
		if e := d.overrideOne(text); e != nil {
			errs = append(errs, e)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}

func (d *decoder) overrideOne(text string) *Error {
	name := "--set " + oneLine(text)
	key, value, found := strings.Cut(text, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	fail := func(msg, hint string) *Error {
		return &Error{File: name, Key: oneLine(key), Msg: msg, Hint: hint}
	}
	if !found || key == "" || value == "" || strings.ContainsAny(text, "\r\n") {
		return fail("not a setting", "want KEY=VALUE on one line, such as --set train.steps=100")
	}
	plain, indexes, problem := cutIndexes(text)
	if problem != nil {
		return fail(problem.Msg, problem.Hint)
	}
	doc, err := parseTOML(name, []byte(plain))
	if err != nil {
		if err.Hint == "" || strings.Contains(err.Hint, "quotes") {
			err.Hint = overrideHint(key, value)
		}
		return fail(err.Msg, err.Hint)
	}
	if len(doc.leaves) == 0 {
		return fail("not a setting", "want KEY=VALUE, such as --set train.steps=100")
	}
	// One line is one expression; further leaves are those of an inline table.
	parts := doc.leaves[0].key
	if problem := d.put(pathOf(parts, indexes), dig(doc.values, parts), place{file: name}); problem != nil {
		return fail(problem.Msg, problem.Hint)
	}
	d.expandShort()
	return nil
}

func overrideHint(key, value string) string {
	if strings.ContainsAny(value, "\"'[]{}\n") {
		return "want a TOML value"
	}
	return fmt.Sprintf(`want a TOML value; a string needs quotes: --set '%s="%s"'`, oneLine(key), oneLine(value))
}
