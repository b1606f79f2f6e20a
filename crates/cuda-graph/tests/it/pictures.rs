//! Pictures: they say what is in the graph.

use cuda_graph::{
    Buffer, ChildOp, CopyOp, DriverDot, Edge, EdgeData, FillOp, Graph, IfOp, Path, Recorder, Result,
};

use crate::fixture::{context, in_process, store, stream, words};

fn example() -> (Graph, u32) {
    let stream = stream();
    let (a, b) = (words(&stream, &[0; 4]), words(&stream, &[0; 4]));
    let inner = Graph::new(&context()).unwrap();
    inner
        .add(
            FillOp::new(&a, 1u32).unwrap().label("the <inner> \"fill\""),
            (),
        )
        .unwrap();
    let graph = Graph::new(&context()).unwrap();
    let line = line!() + 1;
    let first = graph.add(store(&a, 1).label("first"), ()).unwrap();
    let second = graph.add(store(&a, 2), ()).unwrap();
    graph
        .add_edges([Edge {
            from: first.id(),
            to: second.id(),
            data: EdgeData::programmatic(),
        }])
        .unwrap();
    let child = graph.add(ChildOp::new(&inner), second).unwrap();
    graph
        .add(CopyOp::new(&b, &a).unwrap(), (first, child))
        .unwrap();
    (graph, line)
}

#[test]
fn dot_says_what_each_node_is() {
    let (graph, line) = example();
    let dot = graph.dot().unwrap();
    for part in [
        "0: store",
        "\\\"first\\\"",
        "grid 1x1x1, block 1x1x1",
        "16 bytes, device to device",
        "16 bytes of 0x1",
        "subgraph cluster_n2",
        "n2_0 [label=\"0: fill",
        "the <inner> \\\"fill\\\"",
        "n0 -> n1 [style=dashed];",
        "n1 -> n2;",
        "n2 -> n3;",
        &format!("pictures.rs:{line}"),
    ] {
        assert!(dot.contains(part), "{part} is missing in\n{dot}");
    }
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
}

#[test]
fn svg_draws_each_node() {
    let (graph, _) = example();
    let svg = graph.svg().unwrap();
    assert!(
        svg.contains("<svg") && svg.trim_end().ends_with("</svg>"),
        "{svg}"
    );
    for part in [
        "0: store",
        "&quot;first&quot;",
        "16 bytes of 0x1",
        "&lt;inner&gt;",
    ] {
        assert!(svg.contains(part), "{part} is missing in\n{svg}");
    }
    let empty = Graph::new(&context()).unwrap();
    assert!(empty.svg().unwrap().contains("<svg"));
    assert!(empty.dot().unwrap().contains("digraph"));
}

#[test]
fn the_drivers_picture_has_its_flags() {
    let (graph, _) = example();
    let plain = graph.driver_dot(DriverDot::default()).unwrap();
    assert!(plain.contains("digraph"), "{plain}");
    let all = graph.driver_dot(DriverDot::all()).unwrap();
    assert!(all.len() > plain.len() && all.contains("store"), "{all}");
}

/// Every kind of loop and branch, nested: a switch of three in an if/else in a do-while loop in a
/// while loop.
fn control(r: &mut dyn Recorder, flag: &Buffer<u32>, a: &Buffer<u32>) -> Result<()> {
    let say = |r: &mut dyn Recorder, what: &'static str| {
        let op = FillOp::new(a, 1u32)?.label(what);
        r.record(op).map(drop)
    };
    r.while_nonzero(flag, |r| {
        say(r, "in while")?;
        r.do_while_nonzero(flag, |r| {
            r.if_else_nonzero(
                flag,
                |r| {
                    say(r, "in then")?;
                    r.switch_on(
                        flag,
                        &mut [&mut |r| say(r, "in case 0"), &mut |_| Ok(()), &mut |r| {
                            say(r, "in case 2")
                        }],
                    )
                },
                |r| say(r, "in else"),
            )
        })
    })?;
    r.if_nonzero(flag, |r| say(r, "in if"))
}

/// By a path, and by a capture.
fn controls() -> [Graph; 2] {
    let stream = stream();
    let (flag, a) = (words(&stream, &[0]), words(&stream, &[0]));
    let graph = Graph::new(&context()).unwrap();
    control(&mut Path::new(&graph), &flag, &a).unwrap();
    let captured = Graph::capture(&stream, |c| control(c, &flag, &a));
    [graph, captured.unwrap().0]
}

/// The lines of a cluster with this title, without those of the clusters inside it.
fn cluster<'a>(dot: &'a str, title: &str) -> Vec<&'a str> {
    let wanted = format!("label=\"{title}\";");
    let mut lines = dot
        .lines()
        .map(str::trim)
        .skip_while(|line| **line != wanted);
    lines
        .next()
        .unwrap_or_else(|| panic!("{title} is missing in\n{dot}"));
    let mut depth = 0;
    let mut own = Vec::new();
    for line in lines {
        match line {
            line if line.ends_with('{') => depth += 1,
            "}" if depth == 0 => break,
            "}" => depth -= 1,
            line if depth == 0 => own.push(line),
            _ => {}
        }
    }
    own
}

#[test]
fn dot_shows_loops_and_branches_as_clusters() {
    for graph in controls() {
        let dot = graph.dot().unwrap();
        for part in [
            "1: while\\ncondition 0x",
            ": while\\ncondition 0x",
            ": if/else\\ncondition 0x",
            ": switch of 3\\ncondition 0x",
            "3: if\\ncondition 0x",
            "subgraph cluster_n1_0 {",
            "pictures.rs:",
        ] {
            assert!(dot.contains(part), "{part} is missing in\n{dot}");
        }
        assert_eq!(dot.matches('{').count(), dot.matches('}').count(), "{dot}");
        assert_eq!(dot.matches("label=\"body\"").count(), 2, "{dot}");
        assert_eq!(dot.matches("label=\"then\"").count(), 2, "{dot}");
        let holds = |title: &str, what: &str| {
            let lines = cluster(&dot, title);
            assert!(
                lines.iter().any(|line| line.contains(what)),
                "{title} holds no {what}: {lines:?}"
            );
        };
        holds("body", "in while");
        holds("then", "in then");
        holds("else", "in else");
        holds("case 0", "in case 0");
        // What is empty is drawn all the same.
        holds("case 1", "nothing");
        holds("case 2", "in case 2");
        // The library's own kernels say which condition they set.
        let condition = dot
            .split("1: while\\ncondition ")
            .nth(1)
            .and_then(|rest| rest.split(['\\', ',', '"']).next())
            .expect("it has one");
        assert_eq!(dot.matches(&format!("sets {condition} by 0x")).count(), 2);
        assert_eq!(dot.matches("enters 0x").count(), 1, "{dot}");
    }
}

#[test]
fn svg_draws_loops_and_branches() {
    for graph in controls() {
        let svg = graph.svg().unwrap();
        for part in [
            "1: while",
            ": if/else",
            ": switch of 3",
            "3: if",
            "condition 0x",
            "sets 0x",
            "enters 0x",
            "in case 2",
            ">body<",
            ">then<",
            ">else<",
            ">case 1<",
            "nothing",
        ] {
            assert!(svg.contains(part), "{part} is missing in\n{svg}");
        }
    }
}

/// The numbers that these attributes of an element have.
fn numbers<const N: usize>(element: &str, names: [&str; N]) -> [f64; N] {
    let element = format!(" {element}");
    names.map(|name| {
        let (_, rest) = element
            .split_once(&format!(" {name}=\""))
            .unwrap_or_else(|| panic!("no {name}: {element}"));
        let (number, _) = rest.split_once('"').unwrap();
        number.parse().unwrap()
    })
}

/// The boxes and frames of a picture as left, top, right and bottom.
fn boxes(svg: &str) -> Vec<[f64; 4]> {
    let rects = svg.split("<rect").skip(1).map(|element| {
        let [x, y, width, height] = numbers(element, ["x", "y", "width", "height"]);
        [x, y, x + width, y + height]
    });
    rects.collect()
}

/// In how many boxes and frames each text is that has `part`.
fn depths(svg: &str, part: &str) -> Vec<usize> {
    let boxes = boxes(svg);
    let texts = svg.split("<text ").skip(1);
    texts
        .map(|element| element.split_once("</text>").unwrap().0)
        .filter(|element| element.contains(part))
        .map(|element| {
            let [x, above] = numbers(element, ["x", "y"]);
            // The first line comes a line below.
            let y = above + 15.;
            let around = boxes.iter().filter(|[left, top, right, bottom]| {
                (*left..=*right).contains(&x) && (*top..=*bottom).contains(&y)
            });
            around.count()
        })
        .collect()
}

#[test]
fn svg_draws_frames_around_what_is_inside_of_nodes() {
    for graph in controls() {
        let svg = graph.svg().unwrap();
        // A box; a box and a frame in it; the title's own frame besides; and so on inwards.
        for (part, depth) in [
            (">1: while<", 1),
            (">3: if<", 1),
            ("in while", 3),
            (">else<", 6),
            ("in else", 7),
            ("in case 2", 9),
        ] {
            let depths = depths(&svg, part);
            assert!(!depths.is_empty(), "no {part} in\n{svg}");
            assert!(depths.contains(&depth), "{part}: {depths:?}");
        }
        // Boxes lie in each other or apart.
        let boxes = boxes(&svg);
        for (at, a) in boxes.iter().enumerate() {
            for b in &boxes[at + 1..] {
                let apart = a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
                let within = |a: &[f64; 4], b: &[f64; 4]| {
                    a[0] >= b[0] && a[1] >= b[1] && a[2] <= b[2] && a[3] <= b[3]
                };
                assert!(apart || within(a, b) || within(b, a), "{a:?}, {b:?}");
            }
        }
        // All of it is in the picture.
        let [width, height] = numbers(&svg, ["width", "height"]);
        assert!(boxes.iter().all(|[left, top, right, bottom]| *left >= 0.
            && *top >= 0.
            && *right <= width
            && *bottom <= height));
        // And it ends where the lowest box does.
        let lowest = boxes.iter().map(|it| it[3]).fold(0., f64::max);
        assert!(height < lowest + 20., "{height}, {lowest}");
    }
    let (graph, _) = example();
    let svg = graph.svg().unwrap();
    assert_eq!(depths(&svg, "0: store"), [1]);
    assert_eq!(depths(&svg, "&lt;inner&gt;"), [3]);
}

#[test]
fn the_drivers_picture_has_the_bodies() {
    for graph in controls() {
        let text = graph.driver_dot(DriverDot::all()).unwrap();
        assert!(text.contains("set_condition"), "{text}");
        let plain = graph.driver_dot(DriverDot::default()).unwrap();
        assert!(plain.contains("digraph"), "{plain}");
    }
}

#[test]
fn a_picture_of_a_body_is_one_of_a_graph() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = Graph::new(&context()).unwrap();
    let condition = graph.condition(Some(1)).unwrap();
    let node = graph.add(IfOp::new(&condition).label("maybe"), ()).unwrap();
    let body = graph.body(node).unwrap();
    body.add(store(&a, 1), ()).unwrap();
    assert!(body.dot().unwrap().contains("0: store"));
    assert!(body.svg().unwrap().contains("0: store"));
    let dot = graph.dot().unwrap();
    for part in ["0: if", ", 1 at first", "\\\"maybe\\\"", "0: store"] {
        assert!(dot.contains(part), "{part} is missing in\n{dot}");
    }
}

#[test]
#[ignore = "run by the next, in a process of its own"]
fn a_picture_is_drawn_in_a_folder_of_others() {
    let graph = Graph::new(&context()).unwrap();
    graph.add(cuda_graph::EmptyOp::new(), ()).unwrap();
    let folder = std::env::temp_dir();
    let target = folder.join("somebody's");
    std::fs::write(&target, "precious").unwrap();
    // Whoever guesses a name puts a link there.
    for number in 0..10 {
        let name = format!("cuda-graph-{}-{number}.dot", std::process::id());
        std::os::unix::fs::symlink(&target, folder.join(name)).unwrap();
    }
    let text = graph.driver_dot(DriverDot::all()).unwrap();
    assert!(text.starts_with("digraph"), "{text}");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count(),
        11,
        "nothing stays"
    );
}

/// The driver's file is nowhere where somebody else can have put one.
#[test]
fn the_drivers_picture_follows_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    in_process(
        "pictures::a_picture_is_drawn_in_a_folder_of_others",
        &[("TMPDIR", path)],
    );
}
