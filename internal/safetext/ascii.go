package safetext

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// greek lists the names of the letters from α to ω. In Unicode, Α to Ω have the same order.
var greek = strings.Fields("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu " +
	"nu xi omicron pi rho sigma sigma tau upsilon phi chi psi omega")

// ASCII returns text with letters and digits beyond ASCII replaced: accented letters and
// typographic variants by their base forms (é, ﬁ, ², ½ become e, fi, 2, 1/2), Greek letters by
// their names, and others by u and the code point, as in u65e5. Of other characters, only
// typographic variants are replaced. ASCII text is returned unchanged.
func ASCII(text string) string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(Valid(text)) {
		switch {
		case r <= unicode.MaxASCII:
			b.WriteRune(r)
		case unicode.Is(unicode.Mn, r): // an accent
		case r == '⁄': // fraction slash
			b.WriteByte('/')
		case r == '−': // minus sign
			b.WriteByte('-')
		case r >= 'α' && r <= 'ω':
			b.WriteString(greek[r-'α'])
		case r >= 'Α' && r <= 'Ω':
			name := greek[r-'Α']
			b.WriteString(strings.ToUpper(name[:1]) + name[1:])
		case unicode.IsLetter(r) || unicode.IsNumber(r):
			fmt.Fprintf(&b, "u%x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
