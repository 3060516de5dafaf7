package demo

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// columns is the width of the output.
const columns = 80

// events returns the Events of a ConfigMap. It selects them by uid, because an earlier ConfigMap of the same name
// may have Events too.
func (d *demo) events(ctx context.Context, name string) ([]corev1.Event, error) {
	cm, err := d.client.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	list, err := d.client.Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(cm.UID)).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list Events: %w", err)
	}
	return list.Items, nil
}

// wrap breaks text between words into indented lines that fit, unless a word is longer.
func wrap(text, indent string) string {
	lines, column := indent, len(indent)
	for i, word := range strings.Fields(text) {
		width := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+width > columns:
			lines, column = lines+"\n"+indent, len(indent)
		default:
			lines, column = lines+" ", column+1
		}
		lines, column = lines+word, column+width
	}
	return lines + "\n"
}
