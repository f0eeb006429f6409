package report

import (
	"path"
	"regexp"
	"strings"
	"unicode"

	"github.com/cage-qat/cage/internal/transliterate"
)

// line makes any text one line of printable characters.
func line(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return strings.Join(strings.Fields(s), " ")
}

// firstLine is the first line of a text that is not empty.
func firstLine(s string) string {
	for l := range strings.Lines(s) {
		if l = line(l); l != "" {
			return l
		}
	}
	return "no error was recorded"
}

// slug makes a name of a file from any text.
func slug(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(transliterate.ASCII(line(s))) {
		switch {
		case r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	const longest = 40
	out := b.String()
	return strings.Trim(out[:min(len(out), longest)], "-")
}

var (
	// absolutePath finds paths from the root, of two elements or more.
	absolutePath = regexp.MustCompile(`(^|[\s"'` + "`" + `=:(\[,])((?:/[^/\s"'` + "`" + `:,()\[\]]+){2,})`)
	// clock finds times of day, with what logs write before them.
	clock = regexp.MustCompile(`(?:\d{4}-\d\d-\d\d[T ]|\b)\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?\s?`)
)

// placeless removes from a text what depends on when and where a study ran: times of
// day, and the directories of absolute paths.
func placeless(s string) string {
	s = absolutePath.ReplaceAllStringFunc(s, func(match string) string {
		i := strings.IndexByte(match, '/')
		return match[:i] + "…/" + path.Base(match[i:])
	})
	return clock.ReplaceAllString(s, "")
}
