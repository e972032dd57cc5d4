package awsfake

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/google/go-cmp/cmp"
)

// TestParametersAgainstMoto compares both stand-ins as far as moto is right. It leaves out what moto 5.2.1 does not
// model: sizes and tiers, types that change, versions that do not exist (it answers ParameterNotFound), names with
// spaces, short pages, throughput, GetParameters without a name.
func TestParametersAgainstMoto(t *testing.T) {
	theirs := motoBench(t)
	ours := newBench(t, Options{Rates: freely})
	if diff := cmp.Diff(theirs.parameters(t), ours.parameters(t)); diff != "" {
		t.Errorf("moto (-) and awsfake (+) differ:\n%s", diff)
	}
}

func (b *bench) parameters(t *testing.T) []string {
	t.Helper()
	var said []string
	for n := range 24 {
		in := put(fmt.Sprintf("/demo/%c/p%02d", 'a'+n%3, n), fmt.Sprint("v", n), types.ParameterTypeSecureString)
		if n%2 == 0 {
			in.Type = types.ParameterTypeString
		}
		out, err := b.ssm.PutParameter(t.Context(), in)
		if said = append(said, outcome(err)); err == nil {
			said = append(said, fmt.Sprint(out.Version))
		}
	}
	again := put("/demo/a/p00", "w", types.ParameterTypeString)
	again.Overwrite = aws.Bool(true)
	for _, in := range []*ssm.PutParameterInput{
		put("/demo/a/p00", "x", types.ParameterTypeString), again, put("/demo/x", "", types.ParameterTypeString), put("/demo/x", "x", ""),
		put("ssmx", "x", types.ParameterTypeString),
	} {
		_, err := b.ssm.PutParameter(t.Context(), in)
		said = append(said, outcome(err))
	}
	for _, name := range []string{"/demo/a/p00", "/demo/a/p00:1", "/demo/b/p01", "/demo/none"} {
		out, err := b.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &name, WithDecryption: aws.Bool(true)})
		if said = append(said, outcome(err)); err == nil {
			said = append(said, line(*out.Parameter))
		}
	}
	for _, names := range [][]string{{"/demo/a/p00"}, {"/demo/b/p01", "/demo/none", "/demo/a/p00:1"}, {"/demo/none"}, eleven()[:10], eleven()} {
		out, err := b.ssm.GetParameters(t.Context(), &ssm.GetParametersInput{Names: names, WithDecryption: aws.Bool(true)})
		if said = append(said, outcome(err)); err != nil {
			continue
		}
		// moto's order is that of a set; AWS's is the alphabet's.
		slices.SortFunc(out.Parameters, func(a, b types.Parameter) int { return strings.Compare(*a.Name, *b.Name) })
		for _, p := range out.Parameters {
			said = append(said, line(p))
		}
		slices.Sort(out.InvalidParameters)
		said = append(said, fmt.Sprint("invalid ", out.InvalidParameters))
	}
	for _, path := range []string{"/demo/a", "/demo", "/", "/none"} {
		for _, recursive := range []bool{false, true} {
			said = append(said, path, strings.Join(b.byPath(t, path, recursive), "; "))
		}
	}
	deleted, err := b.ssm.DeleteParameters(t.Context(), &ssm.DeleteParametersInput{Names: []string{"/demo/a/p00", "/demo/none"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.ssm.DeleteParameter(t.Context(), &ssm.DeleteParameterInput{Name: aws.String("/demo/a/p00")})
	return append(said, fmt.Sprint(deleted.DeletedParameters, deleted.InvalidParameters), outcome(err))
}

// eleven are names of parameters, one more than a call takes.
func eleven() (names []string) {
	for n := range 11 {
		names = append(names, fmt.Sprintf("/demo/%c/p%02d", 'a'+n%3, n))
	}
	return names
}

func line(p types.Parameter) string {
	account := strings.Split(*p.ARN, ":")
	return fmt.Sprint(*p.Name, " ", *p.Value, " ", p.Version, " ", p.Type, " ", *p.DataType, " ", account[len(account)-1])
}

func (b *bench) byPath(t *testing.T, path string, recursive bool) (said []string) {
	t.Helper()
	p := ssm.NewGetParametersByPathPaginator(b.ssm, &ssm.GetParametersByPathInput{Path: &path, Recursive: &recursive, WithDecryption: aws.Bool(true)})
	for p.HasMorePages() {
		out, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, parameter := range out.Parameters {
			if !strings.HasPrefix(*parameter.Name, "/aws/") { // moto has AWS's public parameters too
				said = append(said, line(parameter))
			}
		}
	}
	slices.Sort(said) // AWS documents no order
	return said
}
