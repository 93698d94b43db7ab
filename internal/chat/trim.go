package chat

import "strings"

// trimBlocks rewrites a template so that this engine renders it as the trainers'
// does, which runs jinja with trim_blocks and lstrip_blocks: the line feed after
// a block tag or comment goes, and so do the blanks before one that begins its
// line; a "+" in a tag keeps them. One line feed at the template's very end goes
// as well.
func trimBlocks(src string) string {
	src = strings.TrimSuffix(src, "\n")
	var b strings.Builder
	at := 0 // src[:at] is written
	for {
		i, end := nextTag(src, at)
		if i < 0 {
			b.WriteString(src[at:])
			return b.String()
		}
		text, tag := src[at:i], src[i:end]
		at = end
		if tag[1] == '{' {
			b.WriteString(text)
			b.WriteString(tag)
			continue
		}
		inner := tag[2 : len(tag)-2]
		keep := strings.HasPrefix(inner, "+")
		inner = strings.TrimPrefix(inner, "+")
		if !keep && beginsLine(src, i) {
			text = strings.TrimRight(text, " \t")
		}
		keep = strings.HasSuffix(inner, "+")
		inner = strings.TrimSuffix(inner, "+")
		if tag[1] == '#' { // this engine stumbles over quotes in comments
			if strings.HasPrefix(inner, "-") {
				text = strings.TrimRight(text, " \t\r\n")
			}
			b.WriteString(text)
			if strings.HasSuffix(inner, "-") {
				at = len(src) - len(strings.TrimLeft(src[at:], " \t\r\n"))
			}
		} else {
			b.WriteString(text + tag[:2] + inner + tag[len(tag)-2:])
		}
		if !keep && strings.HasPrefix(src[at:], "\n") {
			at++
		}
		if tag[1] == '%' && strings.Trim(inner, "- \t\n") == "raw" { // nothing inside is a tag
			if j := strings.Index(src[at:], "endraw"); j >= 0 {
				j = max(0, strings.LastIndex(src[at:at+j], "{%"))
				b.WriteString(src[at : at+j])
				at += j
			}
		}
	}
}

// beginsLine reports whether only blanks stand before src[i] in its line.
func beginsLine(src string, i int) bool {
	line := src[strings.LastIndexByte(src[:i], '\n')+1 : i]
	return strings.Trim(line, " \t") == ""
}

// nextTag returns where the next tag from at on begins and ends, or -1. A tag's
// end inside quotes does not count. An unclosed tag is none: the compiler will
// complain about it.
func nextTag(src string, at int) (begin, end int) {
	for begin = at; begin+1 < len(src); begin++ {
		if src[begin] != '{' {
			continue
		}
		closing := ""
		switch src[begin+1] {
		case '{':
			closing = "}}"
		case '%':
			closing = "%}"
		case '#':
			closing = "#}"
		default:
			continue
		}
		var quote byte
		for j := begin + 2; j < len(src); j++ {
			switch c := src[j]; {
			case quote != 0 && c == '\\':
				j++
			case quote != 0:
				if c == quote {
					quote = 0
				}
			case closing != "#}" && (c == '"' || c == '\''):
				quote = c
			case strings.HasPrefix(src[j:], closing):
				return begin, j + 2
			}
		}
		return -1, -1
	}
	return -1, -1
}
