// Package houserules contains the rules of this module, such as which package may import
// which, and that every package has one comment. It has no code: its tests examine the
// whole module and fail with the reason for the rule.
package houserules
