//! Our own picture, laid out and drawn.
//!
//! Each graph inside of a node is laid out by itself, and drawn in a frame in the node's box, which is made large enough for that.

use layout::backends::svg::SVGWriter;
use layout::core::base::Orientation;
use layout::core::format::{ClipHandle, RenderBackend};
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;

use super::{Drawn, Picture};
use crate::{Graph, Result};

impl Graph {
    /// A picture as SVG, with what [`dot`](Graph::dot) says. A node with an embedded graph, or bodies, is a box with a frame for each of
    /// these. No other program is needed; laying out takes long from some hundreds of nodes on.
    pub fn svg(&self) -> Result<String> {
        let picture = Picture::of(self)?;
        if picture.nodes.is_empty() {
            return Ok(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1\" height=\"1\"></svg>\n"
                    .into(),
            );
        }
        let sheet = Sheet::of(&picture);
        let mut writer = SVGWriter::new();
        for stroke in sheet.strokes {
            stroke(&mut writer, Point::zero());
        }
        Ok(cut(&writer.finalize(), sheet.size))
    }
}

/// The same drawing on a canvas that ends where what is drawn does: the writer takes a text to be as high as it is long.
fn cut(svg: &str, size: Point) -> String {
    let Some((before, (_, after))) = svg
        .split_once("<svg ")
        .and_then(|(before, rest)| Some((before, rest.split_once('>')?)))
    else {
        return svg.into();
    };
    let (width, height) = (size.x + 5., size.y + 5.);
    format!(
        "{before}<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" xmlns=\"http://www.w3.org/2000/svg\">{after}"
    )
}

/// Between frames, and around what is in them.
const GAP: f64 = 15.;

/// Draws something so far from where it was laid out.
type Stroke = Box<dyn Fn(&mut dyn RenderBackend, Point)>;

/// A picture laid out.
struct Sheet {
    strokes: Vec<Stroke>,
    size: Point,
}

/// A node with frames.
struct Framed<'a> {
    node: layout::adt::dag::NodeHandle,
    text: String,
    /// How high the text is.
    head: f64,
    /// How wide all frames are.
    width: f64,
    frames: Vec<Frame<'a>>,
}

struct Frame<'a> {
    title: Option<&'a str>,
    /// How high the title is.
    head: f64,
    inside: Sheet,
    size: Point,
}

impl Sheet {
    fn of(picture: &Picture) -> Sheet {
        let mut drawing = VisualGraph::new(Orientation::TopToBottom);
        let mut framed = Vec::new();
        let mut handles = Vec::with_capacity(picture.nodes.len());
        for Drawn { lines, inside } in &picture.nodes {
            let text = lines.join("\n");
            let frames: Vec<_> = inside.iter().map(Frame::of).collect();
            let head = size_of_text(lines.iter().map(String::as_str));
            let width = frames.iter().map(|frame| frame.size.x + GAP).sum::<f64>() + GAP;
            let height = frames.iter().map(|frame| frame.size.y).fold(0., f64::max);
            let (shape, size) = match frames.is_empty() {
                true => (ShapeKind::new_box(&text), head),
                false => {
                    let size = Point::new(head.x.max(width), head.y + height + 2. * GAP);
                    (ShapeKind::new_box(""), size)
                }
            };
            let place = Orientation::TopToBottom;
            let node = drawing.add_node(Element::create(shape, StyleAttr::simple(), place, size));
            handles.push(node);
            if !frames.is_empty() {
                let head = head.y;
                framed.push(Framed {
                    node,
                    text,
                    head,
                    width,
                    frames,
                });
            }
        }
        for (from, to, _) in &picture.edges {
            drawing.add_edge(Arrow::simple(""), handles[*from], handles[*to]);
        }
        let mut sheet = Sheet {
            strokes: Vec::new(),
            size: Point::zero(),
        };
        drawing.do_it(false, false, false, &mut sheet);
        for framed in framed {
            let position = drawing.pos(framed.node);
            sheet.fill(framed, position.bbox(false).0, position.center().x);
        }
        sheet
    }

    /// Draws what is in the box of a node, whose upper left corner is `corner` and whose middle is at `middle`.
    fn fill(&mut self, node: Framed<'_>, corner: Point, middle: f64) {
        let look = StyleAttr::simple();
        let top = corner.y + GAP / 2.;
        self.draw_text(Point::new(middle, top + node.head / 2.), &node.text, &look);
        let top = top + node.head + GAP / 2.;
        let mut left = middle - node.width / 2. + GAP;
        for frame in node.frames {
            let mut border = look.clone();
            (border.line_width, border.rounded) = (1, 10);
            self.draw_rect(Point::new(left, top), frame.size, &border, None, None);
            if let Some(title) = frame.title {
                let at = Point::new(left + frame.size.x / 2., top + frame.head / 2.);
                self.draw_text(at, title, &look);
            }
            self.put(frame.inside, Point::new(left, top + frame.head));
            left += frame.size.x + GAP;
        }
    }

    /// Draws `other` so far from the corner.
    fn put(&mut self, other: Sheet, by: Point) {
        self.reach(by.add(other.size));
        for stroke in other.strokes {
            self.strokes
                .push(Box::new(move |canvas, more| stroke(canvas, by.add(more))));
        }
    }

    /// Is at least as large as that.
    fn reach(&mut self, corner: Point) {
        self.size.x = self.size.x.max(corner.x);
        self.size.y = self.size.y.max(corner.y);
    }
}

impl Frame<'_> {
    fn of((title, picture): &(Option<String>, Picture)) -> Frame<'_> {
        let inside = Sheet::of(picture);
        let title = title.as_deref();
        let text = title.map_or(Point::zero(), |title| size_of_text([title]));
        let size = Point::new(
            inside.size.x.max(text.x) + GAP,
            inside.size.y + text.y + GAP,
        );
        let head = text.y;
        Frame {
            title,
            head,
            inside,
            size,
        }
    }
}

/// How large the box around some lines is.
fn size_of_text<'a>(lines: impl IntoIterator<Item = &'a str>) -> Point {
    let (mut columns, mut rows) = (0, 0);
    for line in lines {
        columns = columns.max(line.chars().count());
        rows += 1;
    }
    Point::new(10. * columns as f64 + 20., 20. * f64::from(rows) + 10.)
}

impl RenderBackend for Sheet {
    fn draw_rect(
        &mut self,
        xy: Point,
        size: Point,
        look: &StyleAttr,
        properties: Option<String>,
        clip: Option<ClipHandle>,
    ) {
        self.reach(xy.add(size));
        let look = look.clone();
        self.strokes.push(Box::new(move |canvas, by| {
            canvas.draw_rect(xy.add(by), size, &look, properties.clone(), clip);
        }));
    }

    fn draw_line(
        &mut self,
        start: Point,
        stop: Point,
        look: &StyleAttr,
        properties: Option<String>,
    ) {
        self.reach(start);
        self.reach(stop);
        let look = look.clone();
        self.strokes.push(Box::new(move |canvas, by| {
            canvas.draw_line(start.add(by), stop.add(by), &look, properties.clone());
        }));
    }

    fn draw_circle(
        &mut self,
        xy: Point,
        size: Point,
        look: &StyleAttr,
        properties: Option<String>,
    ) {
        self.reach(xy.add(size));
        let look = look.clone();
        self.strokes.push(Box::new(move |canvas, by| {
            canvas.draw_circle(xy.add(by), size, &look, properties.clone());
        }));
    }

    fn draw_text(&mut self, xy: Point, text: &str, look: &StyleAttr) {
        if text.trim().is_empty() {
            return;
        }
        let (text, look) = (text.to_owned(), look.clone());
        self.strokes.push(Box::new(move |canvas, by| {
            canvas.draw_text(xy.add(by), &text, &look);
        }));
    }

    fn draw_arrow(
        &mut self,
        path: &[(Point, Point)],
        dashed: bool,
        head: (bool, bool),
        look: &StyleAttr,
        properties: Option<String>,
        text: &str,
    ) {
        for (point, control) in path {
            self.reach(*point);
            self.reach(*control);
        }
        let (path, text, look) = (path.to_vec(), text.to_owned(), look.clone());
        self.strokes.push(Box::new(move |canvas, by| {
            let shifted = path.iter().map(|(a, b)| (a.add(by), b.add(by)));
            let path: Vec<_> = shifted.collect();
            canvas.draw_arrow(&path, dashed, head, &look, properties.clone(), &text);
        }));
    }

    /// Boxes, which are all that is drawn, are not clipped.
    fn create_clip(&mut self, _: Point, _: Point, _: usize) -> ClipHandle {
        0
    }
}
