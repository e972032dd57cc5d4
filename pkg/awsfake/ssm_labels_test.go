package awsfake

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

const imageParameter = "/hardtack/stable/image-id"

func (s *shop) promote(t *testing.T, image string) (int64, error) {
	t.Helper()
	in := put(imageParameter, image, types.ParameterTypeString)
	in.DataType, in.Overwrite = aws.String(dataImage), aws.Bool(true)
	out, err := s.ssm.PutParameter(t.Context(), in)
	if err != nil {
		return 0, err
	}
	return out.Version, nil
}

// TestImageParameters: the call is answered before the image is looked for, and nothing changes where there is none.
func TestImageParameters(t *testing.T) {
	s := newShop(t, Options{Regions: []string{awayRegion}, EBS: EBSOptions{Validate: time.Second}})
	first := s.register(t, imageOf("one", s.publish(t, ebs.StartSnapshotInput{}, nil)))
	second := s.register(t, imageOf("two", s.publish(t, ebs.StartSnapshotInput{}, nil)))
	value := func() string {
		out, err := s.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String(imageParameter)})
		if err != nil {
			return codeOf(err)
		}
		return fmt.Sprint(*out.Parameter.Value, " ", out.Parameter.Version, " ", *out.Parameter.DataType)
	}
	for _, step := range []struct {
		image  string
		before string
		after  string
	}{
		{first, "ParameterNotFound", first + " 1 aws:ec2:image"},
		{"ami-0123456789abcdef0", first + " 1 aws:ec2:image", first + " 1 aws:ec2:image"},
		{"no image at all", first + " 1 aws:ec2:image", first + " 1 aws:ec2:image"},
		{second, first + " 1 aws:ec2:image", second + " 2 aws:ec2:image"},
	} {
		if _, err := s.promote(t, step.image); err != nil {
			t.Fatal(err)
		}
		if got := value(); got != step.before {
			t.Errorf("just after %s was put it is %s, want %s", step.image, got, step.before)
		}
		_, err := s.promote(t, second)
		wantCode(t, err, "TooManyUpdates", "")
		s.pass(time.Second)
		if got := value(); got != step.after {
			t.Errorf("later it is %s, want %s", got, step.after)
		}
	}
	if names := s.account.SSMIn(awayRegion).Names("/"); len(names) != 0 {
		t.Errorf("in another region there are %q", names)
	}
	if _, err := s.in(awayRegion, anyone()).promote(t, first); err != nil {
		t.Fatal(err)
	}
	s.pass(time.Second)
	if names := s.account.SSMIn(awayRegion).Names("/"); len(names) != 0 {
		t.Errorf("an image of another region was promoted: %q", names)
	}
	secret := put("/x", first, types.ParameterTypeSecureString)
	secret.DataType = aws.String(dataImage)
	_, err := s.ssm.PutParameter(t.Context(), secret)
	wantCode(t, err, "ValidationException", "")
}

func TestParameterLabels(t *testing.T) {
	s := newShop(t, Options{})
	s.putVersions(t, 3)
	label := func(version int64, labels ...string) ([]string, error) {
		in := &ssm.LabelParameterVersionInput{Name: aws.String("/demo/p"), Labels: labels}
		if version > 0 {
			in.ParameterVersion = &version
		}
		out, err := s.ssm.LabelParameterVersion(t.Context(), in)
		if err != nil {
			return nil, err
		}
		return out.InvalidLabels, nil
	}
	if bad, err := label(1, "current", "9lives", "aws-x", "SSMx", "a b", "x.y_z-1"); err != nil || !slices.Equal(bad, []string{"9lives", "aws-x", "SSMx", "a b"}) {
		t.Errorf("invalid are %q, %v", bad, err)
	}
	if bad, err := label(0, "current"); err != nil || len(bad) != 0 {
		t.Errorf("moving a label: %q, %v", bad, err)
	}
	_, err := label(4, "x")
	wantCode(t, err, "ParameterVersionNotFound", "")
	_, err = label(1, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
	wantCode(t, err, "ParameterVersionLabelLimitExceeded", "A parameter version can have a maximum of 10 labels.")
	get := func(name string) string {
		out, err := s.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &name})
		if err != nil {
			return codeOf(err)
		}
		return *out.Parameter.Value + aws.ToString(out.Parameter.Selector)
	}
	if one, three, none := get("/demo/p:x.y_z-1"), get("/demo/p:current"), get("/demo/p:9lives"); one != "v1:x.y_z-1" || three != "v3:current" || none != "ParameterVersionNotFound" {
		t.Errorf("by labels: %s, %s, %s", one, three, none)
	}
	var lines []string
	for p := ssm.NewGetParameterHistoryPaginator(s.ssm, &ssm.GetParameterHistoryInput{Name: aws.String("/demo/p"), MaxResults: aws.Int32(2)}); p.HasMorePages(); {
		page, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range page.Parameters {
			lines = append(lines, fmt.Sprint(h.Version, " ", *h.Value, " ", *h.Description, " ", strings.Join(h.Labels, ","), " ", *h.DataType, " ", *h.LastModifiedUser))
		}
	}
	want := []string{"1 v1 the 1 x.y_z-1 text arn:aws:iam::123456789012:root", "2 v2 the 2  text arn:aws:iam::123456789012:root", "3 v3 the 3 current text arn:aws:iam::123456789012:root"}
	if !slices.Equal(lines, want) {
		t.Errorf("the history is\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	out, err := s.ssm.UnlabelParameterVersion(t.Context(), &ssm.UnlabelParameterVersionInput{Name: aws.String("/demo/p"), ParameterVersion: aws.Int64(3), Labels: []string{"current", "x.y_z-1"}})
	if err != nil || !slices.Equal(out.RemovedLabels, []string{"current"}) || !slices.Equal(out.InvalidLabels, []string{"x.y_z-1"}) {
		t.Errorf("%+v, %v", out, err)
	}
}

// putVersions makes versions of a parameter, from v1 on.
func (s *shop) putVersions(t *testing.T, n int) {
	t.Helper()
	for n := range n {
		in := put("/demo/p", fmt.Sprint("v", n+1), "")
		if in.Overwrite = aws.Bool(n > 0); n == 0 {
			in.Type = types.ParameterTypeString
		}
		in.Description = aws.String(fmt.Sprint("the ", n+1))
		if _, err := s.ssm.PutParameter(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLabelledVersionsStay: the oldest version does not make room as long as it has a label.
func TestLabelledVersionsStay(t *testing.T) {
	s := newShop(t, Options{})
	store := s.account.SSM()
	for n := range keptParameters {
		if _, err := store.Put(Parameter{Name: "/p", Value: fmt.Sprint(n)}, n > 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.ssm.LabelParameterVersion(t.Context(), &ssm.LabelParameterVersionInput{Name: aws.String("/p"), ParameterVersion: aws.Int64(1), Labels: []string{"good"}}); err != nil {
		t.Fatal(err)
	}
	in := put("/p", "more", "")
	in.Overwrite = aws.Bool(true)
	_, err := s.ssm.PutParameter(t.Context(), in)
	wantCode(t, err, "ParameterMaxVersionLimitExceeded", "")
	if _, err := s.ssm.LabelParameterVersion(t.Context(), &ssm.LabelParameterVersionInput{Name: aws.String("/p"), Labels: []string{"good"}}); err != nil {
		t.Fatal(err)
	}
	if out, err := s.ssm.PutParameter(t.Context(), in); err != nil || out.Version != keptParameters+1 {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestDescribeParameters(t *testing.T) {
	s := newShop(t, Options{})
	image := s.register(t, imageOf("one", s.publish(t, ebs.StartSnapshotInput{}, nil)))
	for n := range 60 {
		if _, err := s.account.SSM().Put(Parameter{Name: fmt.Sprintf("/demo/p%02d", n), Value: "v"}, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.promote(t, image); err != nil {
		t.Fatal(err)
	}
	var names []string
	pages := 0
	for p := ssm.NewDescribeParametersPaginator(s.ssm, &ssm.DescribeParametersInput{ParameterFilters: []types.ParameterStringFilter{
		{Key: aws.String("DataType"), Values: []string{dataImage}},
	}}); p.HasMorePages(); pages++ {
		page, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Parameters {
			names = append(names, *m.Name)
		}
	}
	if pages != 2 || !slices.Equal(names, []string{imageParameter}) {
		t.Errorf("%d pages with %q, want an empty one and one with the parameter", pages, names)
	}
}
