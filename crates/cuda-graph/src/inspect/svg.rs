//! Our own picture, laid out and drawn.
//!
//! Each graph inside of a node is laid out by itself, and drawn in a frame in the node's box, which
//! is made large enough for that.

use layout::backends::svg::SVGWriter;
use layout::core::base::Orientation;
use layout::core::color::Color;
use layout::core::format::{ClipHandle, RenderBackend};
use layout::core::geometry::{Point, Position};
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;

use super::{Look, Picture};
use crate::{Graph, Result};

impl Graph {
    /// A picture as SVG, with what [`dot`](Graph::dot) says. A node with an embedded graph or
    /// bodies is a box with a frame for each. Laying out takes long from some hundreds of nodes on.
    pub fn svg(&self) -> Result<String> {
        Ok(drawn(&Picture::of(self)?))
    }
}

/// A picture as SVG.
pub(super) fn drawn(picture: &Picture) -> String {
    let sheet = Sheet::of(picture);
    let mut writer = SVGWriter::new();
    for stroke in sheet.strokes {
        stroke(&mut writer, Point::zero());
    }
    cut(writer.finalize(), sheet.size)
}

/// How a node's box is drawn.
fn style(look: Look) -> StyleAttr {
    let mut style = StyleAttr::simple();
    style.fill_color = match look {
        Look::Plain => style.fill_color,
        Look::Added => Some(Color::new(0xc8f0_c8ff)),
        Look::Changed => Some(Color::new(0xfff0_b0ff)),
        Look::Removed => Some(Color::new(0xf8c8_c8ff)),
    };
    style
}

/// The same drawing on a canvas that ends where what is drawn does: the writer takes a text to be
/// as high as it is long.
fn cut(svg: String, size: Point) -> String {
    let Some((before, rest)) = svg.split_once("<svg ") else {
        return svg;
    };
    let after = rest.split_once('>').map_or("", |(_, after)| after);
    let (width, height) = (size.x + 5., size.y + 5.);
    format!(
        "{before}<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\">{after}"
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

/// A graph in a node's box.
struct Frame<'a> {
    title: &'a str,
    inside: Sheet,
    size: Point,
}

impl Sheet {
    fn of(picture: &Picture) -> Sheet {
        let down = Orientation::TopToBottom;
        let mut drawing = VisualGraph::new(down);
        let mut nodes = Vec::with_capacity(picture.nodes.len());
        for drawn in &picture.nodes {
            let text = drawn.lines.join("\n");
            let frames: Vec<_> = drawn.inside.iter().map(Frame::of).collect();
            let (mut shown, mut size) = (text.as_str(), size_of_text(&text));
            if !frames.is_empty() {
                let height = frames.iter().map(|frame| frame.size.y).fold(0., f64::max);
                size = Point::new(size.x.max(width(&frames)), size.y + height + 2. * GAP);
                shown = "";
            }
            let shape = ShapeKind::new_box(shown);
            let element = Element::create(shape, style(drawn.look), down, size);
            nodes.push((drawing.add_node(element), text, frames));
        }
        for (from, to, _) in &picture.edges {
            drawing.add_edge(Arrow::simple(""), nodes[*from].0, nodes[*to].0);
        }
        let mut sheet = Sheet {
            strokes: Vec::new(),
            size: Point::zero(),
        };
        drawing.do_it(false, false, false, &mut sheet);
        for (node, text, frames) in nodes {
            if !frames.is_empty() {
                sheet.fill(drawing.pos(node), &text, frames);
            }
        }
        sheet
    }

    /// Draws the text and the frames of a node in its box.
    fn fill(&mut self, place: Position, text: &str, frames: Vec<Frame<'_>>) {
        let look = StyleAttr::simple();
        let mut border = look.clone();
        (border.line_width, border.rounded) = (1, 10);
        let (middle, height) = (place.center().x, size_of_text(text).y);
        let top = place.bbox(false).0.y + GAP / 2.;
        self.draw_text(Point::new(middle, top + height / 2.), text, &look);
        let top = top + height + GAP / 2.;
        let mut left = middle - width(&frames) / 2. + GAP;
        for frame in frames {
            self.draw_rect(Point::new(left, top), frame.size, &border, None, None);
            let head = size_of_text(frame.title).y;
            let title = Point::new(left + frame.size.x / 2., top + head / 2.);
            self.draw_text(title, frame.title, &look);
            let by = Point::new(left, top + head);
            for stroke in frame.inside.strokes {
                let moved =
                    move |canvas: &mut dyn RenderBackend, more| stroke(canvas, by.add(more));
                self.strokes.push(Box::new(moved));
            }
            left += frame.size.x + GAP;
        }
    }

    /// Draws something that reaches to `corner`.
    fn draw(&mut self, corner: Point, stroke: impl Fn(&mut dyn RenderBackend, Point) + 'static) {
        self.size.x = self.size.x.max(corner.x);
        self.size.y = self.size.y.max(corner.y);
        self.strokes.push(Box::new(stroke));
    }
}

impl Frame<'_> {
    fn of((title, picture): &(Option<String>, Picture)) -> Frame<'_> {
        let inside = Sheet::of(picture);
        let title = title.as_deref().unwrap_or_default();
        let head = size_of_text(title);
        let width = inside.size.x.max(head.x) + GAP;
        let size = Point::new(width, inside.size.y + head.y + GAP);
        Frame {
            title,
            inside,
            size,
        }
    }
}

/// How wide frames beside each other are.
fn width(frames: &[Frame<'_>]) -> f64 {
    frames.iter().map(|frame| frame.size.x + GAP).sum::<f64>() + GAP
}

/// How large the box around a text is.
fn size_of_text(text: &str) -> Point {
    let columns = text.lines().map(|line| line.chars().count()).max();
    columns.map_or(Point::zero(), |columns| {
        let rows = text.lines().count();
        Point::new(10. * columns as f64 + 20., 20. * rows as f64 + 10.)
    })
}

/// Boxes, texts and arrows are all that is drawn.
impl RenderBackend for Sheet {
    fn draw_rect(
        &mut self,
        xy: Point,
        size: Point,
        look: &StyleAttr,
        properties: Option<String>,
        clip: Option<ClipHandle>,
    ) {
        let look = look.clone();
        self.draw(xy.add(size), move |canvas, by| {
            canvas.draw_rect(xy.add(by), size, &look, properties.clone(), clip);
        });
    }

    fn draw_text(&mut self, xy: Point, text: &str, look: &StyleAttr) {
        if text.trim().is_empty() {
            return;
        }
        let (text, look) = (text.to_owned(), look.clone());
        // The box around it reaches further.
        self.draw(xy, move |canvas, by| {
            canvas.draw_text(xy.add(by), &text, &look);
        });
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
        let points = path.iter().flat_map(|(point, control)| [point, control]);
        let corner = points.fold(Point::zero(), |corner, point| {
            Point::new(corner.x.max(point.x), corner.y.max(point.y))
        });
        let (path, text, look) = (path.to_vec(), text.to_owned(), look.clone());
        self.draw(corner, move |canvas, by| {
            let shifted = path.iter().map(|(a, b)| (a.add(by), b.add(by)));
            let path: Vec<_> = shifted.collect();
            canvas.draw_arrow(&path, dashed, head, &look, properties.clone(), &text);
        });
    }

    fn draw_line(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>) {}

    fn draw_circle(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>) {}

    fn create_clip(&mut self, _: Point, _: Point, _: usize) -> ClipHandle {
        0
    }
}
